"""A fake voice fit that only takes time, and the application `worker` that runs it."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ray import serve
from ray.serve import Application

from configs.load import load_yaml
from configs.schema.serve import WorkerArgs
from configs.schema.voices import CustomVoicesConfig
from db.voices.voices import Voice
from deployments.leased_work.job import run, work
from deployments.leased_work.makers import Maker
from deployments.leased_work.worker import Worker
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, write_pack
from pipelines.voices.report import FailedFit, FittedVoice, VoiceReport

PACK = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.25, np.float32)))
GENERATIONS = 30
TRIALS = 4  # per generation
TRIAL_S = 0.2


@dataclass
class SlowFit:
    """A fit whose checkpoint is the number of generations done."""

    done: int = 0
    generations: int = GENERATIONS
    error: str | None = None  # the error of its result, after the last generation
    target: Any = None
    preview: tuple[bytes, float] | None = None
    replaced: bytes | None = None
    observed: list[int] = field(default_factory=list)

    @property
    def progress(self) -> float:
        return self.done / self.generations

    def next_trials(self) -> list[Any]:
        if self.done == self.generations:
            return []
        return [self.done * TRIALS + number for number in range(TRIALS)]

    def observe(self, outcomes: Sequence[Any]) -> None:
        assert sorted(outcomes) == self.next_trials()
        self.observed += outcomes
        self.done += 1

    def checkpoint(self) -> bytes:
        return json.dumps(self.done).encode()

    def result(self) -> FittedVoice | FailedFit:
        assert self.done == self.generations
        report = VoiceReport(
            evaluations=self.done * TRIALS, seconds=1.0, similarity_curve=[], stock=[]
        )
        if self.error is not None:
            return FailedFit(self.error, "It does not sound alike.", report)
        return FittedVoice(PACK, 0.9, report)


@dataclass
class SlowTrials:
    def run(self, trial: Any) -> Any:
        note("trial", trial)
        time.sleep(TRIAL_S)
        return trial


class SlowMaker(Maker):
    """The voice maker of the jobs in these tests."""

    engine = "tests.engines.tone:ToneEngine"  # by its name in configurations

    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> Any:
        assert samples
        done = 0 if state is None else json.loads(state)
        note("begin", done)
        time.sleep(1)
        return SlowFit(done)

    def trials(self, target: Any) -> Any:
        return SlowTrials()


def note(what: str, about: object) -> None:
    """Appends a line for `notes` in one unbuffered write, which a killed process leaves whole."""
    line = json.dumps([what, about, os.getpid()]) + "\n"
    with (Path(os.environ["ANTIPHON_DATA"]) / "notes").open("ab", buffering=0) as file:
        file.write(line.encode())


def notes(folder: Path, what: str) -> list[tuple[Any, int]]:
    """The notes of one kind, each with the id of the process that wrote it."""
    path = folder / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(about, pid) for kind, about, pid in map(json.loads, lines) if kind == what]


class SlowWorker(Worker):
    job = "tests.deployments.leased_work.slow_voices"


def build_worker(args: WorkerArgs) -> Application:
    application: Application = serve.deployment(name="Worker")(SlowWorker).bind(args)
    return application


if __name__ == "__main__":
    # Imported by its real name and not __main__, since objects are pickled for other processes.
    from tests.deployments.leased_work import slow_voices

    config = load_yaml(CustomVoicesConfig, "custom_voices")

    async def slowly(claimed: Voice) -> Maker:
        return slow_voices.SlowMaker(config, model="tone", most_workers=2)

    run(partial(work, slowly))
