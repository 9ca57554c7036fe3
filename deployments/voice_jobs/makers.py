"""Makers of voices: the fit, and the engines of its trials, as configured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from configs.load import load_yaml
from configs.schema.custom_voices import CustomVoicesConfig
from configs.schema.models.tts import engine_of
from configs.settings import weights_dir
from models.weights.store import WeightStore
from pipelines.voices.queue import ClaimedVoice

if TYPE_CHECKING:
    from pipelines.voices.fitting.fit import Fit
    from pipelines.voices.fitting.prompt import PromptFit, PromptTarget, PromptTrials
    from pipelines.voices.fitting.trials import Target, Trials
    from pipelines.voices.report import FailedFit, FittedVoice

# Imports inside functions: each process imports what it makes.


class AnyFit(Protocol):
    """The interface of `pipelines.voices.fitting.fit.Fit`; its trials have types of their own."""

    @property
    def target(self) -> Any: ...

    @property
    def progress(self) -> float: ...

    def next_trials(self) -> Sequence[Any]: ...

    def observe(self, outcomes: Sequence[Any]) -> None: ...

    def checkpoint(self) -> bytes: ...

    def result(self) -> "FittedVoice | FailedFit": ...


class AnyTrials(Protocol):
    """The interface of `pipelines.voices.fitting.trials.Trials`."""

    def run(self, trial: Any) -> Any: ...


class Maker(Protocol):
    """One method of making voices. Crosses processes, and loads engines when they are needed."""

    @property
    def most_workers(self) -> int:
        """Workers that can be used at once."""
        ...

    @property
    def gpus(self) -> float:
        """The share of a GPU that a worker takes."""
        ...

    def engine(self) -> str:
        """The name of the engine that the voice is made for."""
        ...

    def begin(self, claimed: ClaimedVoice, samples: list[bytes], state: bytes | None) -> AnyFit:
        """Blocks for some seconds. Raises InvalidAudio or EngineError."""
        ...

    def trials(self, target: Any) -> AnyTrials:
        """Blocks for some seconds. Raises EngineError."""
        ...


def configured_maker() -> Maker:
    """As `configs/custom_voices.yaml` says. Raises ValidationError."""
    config = load_yaml(CustomVoicesConfig, "custom_voices")
    return FitMaker(config) if config.method == "fit" else PromptMaker(config)


@dataclass(frozen=True, slots=True)
class FitMaker:
    """Searches for a style of the engine."""

    config: CustomVoicesConfig

    @property
    def most_workers(self) -> int:
        return self.config.work.most_workers

    @property
    def gpus(self) -> float:
        return 0.0

    def engine(self) -> str:
        return engine_of(self.config.work.model)

    def begin(self, claimed: ClaimedVoice, samples: list[bytes], state: bytes | None) -> "Fit":
        """Every attempt has the same seed, so that a resumed one is deterministic."""
        from models.registry import SPEAKER, load
        from pipelines.voices.fitting.fit import Fit

        return Fit.begin(
            samples,
            claimed.language,
            claimed.gender,
            self.config.fit,
            load(SPEAKER, self.config.work.encoder, WeightStore(weights_dir())),
            checkpoint=state,
            british=claimed.british,
        )

    def trials(self, target: "Target") -> "Trials":
        """The engine computes on one thread."""
        from models.registry import SPEAKER, TTS, load, load_model
        from pipelines.voices.fitting.trials import Trials

        work, weights = self.config.work, WeightStore(weights_dir())
        engine, _ = load_model(TTS, work.model, weights, threads=1)
        return Trials(engine, load(SPEAKER, work.encoder, weights), target)


@dataclass(frozen=True, slots=True)
class PromptMaker:
    """Chooses a recording that the engine continues."""

    config: CustomVoicesConfig

    @property
    def most_workers(self) -> int:
        return 1  # its engine is large

    @property
    def gpus(self) -> float:
        return self.config.prompt.gpus if self.config.prompt.judge else 0.0

    def engine(self) -> str:
        return engine_of(self.config.prompt.model)

    def begin(
        self, claimed: ClaimedVoice, samples: list[bytes], state: bytes | None
    ) -> "PromptFit":
        from models.registry import SPEAKER, VAD, load
        from pipelines.voices.fitting.prompt import PromptFit

        weights = WeightStore(weights_dir())
        prompt = self.config.prompt
        return PromptFit.begin(
            samples,
            claimed.language,
            prompt,
            load(VAD, prompt.vad, weights),
            load(SPEAKER, self.config.work.encoder, weights),
        )

    def trials(self, target: "PromptTarget") -> "PromptTrials":
        from models.registry import SPEAKER, TTS, load, load_model
        from pipelines.voices.fitting.prompt import PromptTrials
        from pipelines.voices.fitting.trials import load_speech_raters

        weights = WeightStore(weights_dir())
        prompt = self.config.prompt
        engine = load_model(TTS, prompt.model, weights)[0] if prompt.judge else None
        encoder = load(SPEAKER, self.config.work.encoder, weights)
        return PromptTrials(engine, load_speech_raters(), encoder, target)
