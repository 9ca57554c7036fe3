"""The recipe for a new engine of `docs/structure.md`, followed in a copy of the tree.

A text-to-speech engine takes four edits, and no test:

1. `models/tts/NAME.py`: the engine, a subclass of `TTSEngine`
2. `configs/schema/models/tts.py`: its configuration, also in the union `TTSConfig`
3. `models/engines.yaml`: a line under `tts`
4. `configs/tts/NAME.yaml`: a configuration

An engine of another kind takes the same in `models/<kind>/`, `configs/schema/models/`,
`models/engines.yaml`, and `configs/<folder of the kind>/NAME.yaml`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("configs", "models", "telemetry", "tests/models", "tests/engines")

ENGINE = '''
"""Beeps once for each word."""

from collections.abc import Generator

import numpy as np

from configs.schema.models.tts import BeepConfig
from models.audio import AudioChunk
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.audio import spread
from models.weights.store import WeightStore

RATE = 16_000  # Hz


class BeepEngine(TTSEngine):
    """A beep of 0.2 s for each word."""

    def __init__(self, config: BeepConfig, weights: WeightStore) -> None:
        self._voices = VoiceTable(config.voices, config.engine)
        self._hz = config.hz
        self.capabilities = TTSCapabilities(sample_rate=RATE, languages=self._voices.languages)

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        self._voices.speaking(request.voice, request.language)
        time_s = np.arange(round(0.2 * RATE) * len(request.text.split())) / RATE
        words = spread(request.text, len(time_s) / RATE) if request.timings else ()
        pcm = 0.5 * np.sin(2 * np.pi * self._hz * time_s)
        yield AudioChunk(pcm.astype(np.float32), RATE, tuple(words))
'''

CONFIG = '''
class BeepConfig(SpeechModelConfig):
    """Beeps."""

    engine: Literal["beep"]
    hz: float = Field(default=440.0, gt=0)


TTSConfig = Annotated[
    BeepConfig
    | '''

YAML = """
engine: beep
id: svc/tts-beep
owned_by: antiphon
created: 1788220800
tier: fast
voices:
  - {key: beep, name: Beep, language: en, gender: female, categories: [Gaming]}
  - {key: pieps, name: Pieps, language: es, gender: male, categories: [Gaming]}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the folders that engines and their tests need."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests/__init__.py").touch()
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, path
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_engine_added_by_the_recipe_passes_the_contract_tests(tree: Path) -> None:
    (tree / "models/tts/beep.py").write_text(ENGINE.lstrip(), encoding="utf-8")
    edit(tree / "configs/schema/models/tts.py", "\nTTSConfig = Annotated[\n    ", CONFIG)
    edit(tree / "models/engines.yaml", "\ntts:\n", "\ntts:\n  beep: models.tts.beep:BeepEngine\n")
    (tree / "configs/tts/beep.yaml").write_text(YAML.lstrip(), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider"]
        + ["-k", "beep or configuration", "tests/models/tts/test_contract.py"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.rpartition(" passed")[0].rpartition("\n")[2].split()[-1]) > 10
    assert "skipped" not in run.stdout
