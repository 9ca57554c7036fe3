"""The GPU profile with random weights of the true shapes, and small real ones beside them."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from benchmarks.chat import gpu as chat
from benchmarks.stt import gpu as stt
from benchmarks.tts import gpu as tts
from configs.load import CONFIGS_DIR
from configs.settings import PROJECT_DIR, weights_dir
from models.weights.store import WeightStore, load_catalogue
from tests.models.stt.whisper_transformers.published_whisper import convert
from tests.models.tts.csm.tiny_csm import make_tiny_csm

USED = ("TTSFast", "TTSFormant", "TTSClone", "STT", "Chat", "ModelIndex")
TINY_STT: dict[str, Any] = {
    "d_model": 256,
    "encoder_layers": 1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 256,
    "vocab_size": 2000,
    "init_std": 0.02,
}
COPIED = "antiphon api configs db deployments models pipelines telemetry tests docs".split()


def write_weights(root: Path, tiny: bool) -> None:
    """Write the random models, and those of whisper-base for transformers if it was fetched."""
    device = "cpu" if tiny else "cuda"
    folders = {name: root / "own" / name for name in ("chat", "stt", "csm", "heard")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    chat.write_model(folders["chat"], chat.TINY if tiny else chat.LARGE)
    stt.write_model(folders["stt"], device, TINY_STT if tiny else stt.TURBO)
    make_tiny_csm(folders["csm"]) if tiny else tts.write_model(folders["csm"], device)
    convert(WeightStore(weights_dir()).folder("whisper-base"), folders["heard"])
    cache, entries = root / "weights", {}
    for part in ("artefacts", "derived"):  # of the real models
        (cache / part).mkdir(parents=True)
        for path in (weights_dir() / part).iterdir():
            (cache / part / path.name).symlink_to(path)
    for name, folder in folders.items():
        files = {
            path.relative_to(folder).as_posix(): {
                "size_bytes": path.stat().st_size,
                "git_object": hashlib.sha1(path.name.encode(), usedforsecurity=False).hexdigest(),
            }
            for path in folder.rglob("*")
            if path.is_file()
        }
        source = {"kind": "file", "files": {"*": f"{folder}/{{name}}"}}
        shown = {"description": "random", "licence": "none", "homepage": "none", "required": False}
        entries[f"own-{name}"] = {**shown, "files": files, "sources": [source]}
    (root / "catalogue.yaml").write_text(yaml.safe_dump({"artefacts": entries}))
    os.environ |= {"ANTIPHON_CATALOGUE": f"{root}/catalogue.yaml", "ANTIPHON_WEIGHTS": str(cache)}
    store = WeightStore(cache, load_catalogue())
    for name, folder in folders.items():
        store.artefact_path(f"own-{name}").symlink_to(folder)


def write_configs(root: Path, tiny: bool) -> tuple[Path, Path]:
    """Copy the source with its custom voices by prompt; return two configurations of Serve, of
    which the second has other models for chat and recognition."""
    tree = root / "tree"
    for name in COPIED:
        shutil.copytree(PROJECT_DIR / name, tree / name, ignore=shutil.ignore_patterns("site"))
    for file in ("pyproject.toml", "LICENSE", "CHANGELOG.md"):
        shutil.copy(PROJECT_DIR / file, tree / file)
    small = {"device": "cpu", "dtype": "float32"} if tiny else {}
    tiny_chat = {
        "context_tokens": chat.TINY.context_tokens,
        "cache_tokens": 32 * chat.TINY.context_tokens,
        "batch_tokens": 1024,
        "dtype": "float32",
        "quantization": "none",
        "device": "cpu",
    }
    shapes: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("llm/smollm3", {"weights": "own-chat", **(tiny_chat if tiny else {})}),
        "stt": ("stt/whisper_turbo", {"artefact": "own-stt", **small}),
        "csm": ("tts/csm", {"weights": "own-csm", **small}),
        "next": ("llm/smollm3", {"weights": "smollm2-135m-q4", "gguf_file": "model.gguf"}),
        "heard": ("stt/whisper_turbo", {"artefact": "own-heard", **small}),
    }
    shapes["next"][1].update({"quantization": "none", "tools": "none", **small})
    shapes["next"][1].update(
        {"context_tokens": 2048, "cache_tokens": 8192, "id": "svc/next", "aliases": []}
    )
    for name, (shipped, changed) in shapes.items():
        config = yaml.safe_load((CONFIGS_DIR / f"{shipped}.yaml").read_text())
        (root / f"{name}.yaml").write_text(yaml.safe_dump(config | changed))
    path = tree / "configs/custom_voices.yaml"
    voices = yaml.safe_load(path.read_text()) | {"method": "prompt"}
    # Speech of random weights resembles no speaker, so any similarity is accepted. A worker on the
    # GPU still judges the voice.
    easy = {"model": f"{root}/csm.yaml", "candidates": 1, "judged_sentences": 1}
    voices["prompt"] |= {**easy, "min_similarity": -1.0, "gpus": 0 if tiny else 0.2}
    path.write_text(yaml.safe_dump(voices))
    models = {"TTSClone": "csm", "STT": "stt", "Chat": "chat"}
    for written in ("serve", "again"):
        config = yaml.safe_load((CONFIGS_DIR / "serve_gpu.yaml").read_text())
        served = next(app for app in config["applications"] if app["name"] == "models")
        served["args"] |= {"tts": [name for name in USED if name.startswith("TTS")]}
        served["deployments"] = [d for d in served["deployments"] if d["name"] in USED]
        for entry in served["deployments"]:
            if entry["name"] in models:
                entry["user_config"] = {"model": f"{root}/{models[entry['name']]}.yaml"}
            if tiny:
                entry.get("ray_actor_options", {}).pop("num_gpus", None)
        (root / f"{written}.yaml").write_text(yaml.safe_dump(config))
        models |= {"STT": "heard", "Chat": "next"}
    return root / "serve.yaml", root / "again.yaml"
