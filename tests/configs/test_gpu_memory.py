"""The table of what fits a GPU in docs/gpu.md, against the configurations."""

from collections.abc import Sequence
from typing import Any

from configs.load import CONFIGS_DIR
from configs.schema.serve import ModelUserConfig
from configs.settings import PROJECT_DIR
from models.registry import kind_of
from tests.configs.test_serve_gpu import models_of, read

CARDS_GB = (8, 16, 24, 48, 80)


def memory_gb(model: str) -> float | None:
    config: Any = kind_of(model).read(model)
    need: float | None = config.gpu_memory_gb
    return need


def cell(needs_gb: Sequence[float], card_gb: float) -> str:
    """Say whether models fit a GPU together, and also while one of them is swapped, when the new
    one is loaded beside the old one.

    A GPU of `card_gb` gigabytes has at least as many times 10^9 bytes for programs: it is named in
    units of 2^30, and error correction takes up to a sixteenth.
    """
    if sum(needs_gb) > card_gb:
        return "–"
    return "yes, swaps" if sum(needs_gb) + max(needs_gb) <= card_gb else "yes"


def row(label: str, models: list[str]) -> str:
    needs = [memory_gb(model) or 0.0 for model in models]
    cells = [cell(needs, card) for card in CARDS_GB]
    return f"| {' | '.join([label, f'{sum(needs):.1f}', *cells])} |"


def table() -> str:
    """Write the table: each model alone, and the profile with each chat model."""
    profile = {
        entry["name"]: chosen.wanted or chosen.model
        for entry in models_of(read("configs/serve_gpu.yaml"))["deployments"]
        if entry.get("ray_actor_options", {}).get("num_gpus")
        and (chosen := ModelUserConfig.model_validate(entry["user_config"]))
    }
    assert all(map(memory_gb, profile.values())), "each model of the profile states its memory"
    files = sorted(CONFIGS_DIR.glob("*/*_gpu.yaml"))
    larger = [model for file in files if memory_gb(model := f"{file.parent.name}/{file.stem}")]
    alone = sorted({*profile.values(), *larger}, key=lambda model: memory_gb(model) or 0)
    chats = [model for model in alone if model in larger and model.startswith("llm/")]
    lines = [
        f"| | needs, GB | {' | '.join(f'{card} GB' for card in CARDS_GB)} |",
        "|---" * (len(CARDS_GB) + 2) + "|",
        *(row(f"`{model}`", [model]) for model in alone),
        row(f"the profile: {', '.join(profile)}", list(profile.values())),
    ]
    for chat in chats:
        others = [model for name, model in profile.items() if name != "Chat"]
        lines.append(row(f"the profile with `{chat}` as Chat", [chat, *others]))
    return "\n".join(lines)


def test_the_page_says_what_fits_a_gpu() -> None:
    assert table() in (PROJECT_DIR / "docs" / "gpu.md").read_text()
