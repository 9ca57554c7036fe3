"""The configured method of building voices: its fit, and the engines of its trials."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from configs.settings import weights_dir
from db.voices.voices import Voice
from models.registry import SPEAKER, TTS, VAD, load, load_model
from models.speaker.base import SpeakerEncoder
from models.weights.store import WeightStore

if TYPE_CHECKING:
    from pipelines.voices.fitting.fit import Fit
    from pipelines.voices.fitting.prompt import PromptFit, PromptTarget, PromptTrials
    from pipelines.voices.fitting.trials import Target, Trials

# Imports inside functions: each process imports only what it uses.

AnyFit: TypeAlias = Union["Fit", "PromptFit"]
AnyTrials: TypeAlias = Union["Trials", "PromptTrials"]


@dataclass(frozen=True, slots=True)
class Maker(ABC):
    """One method of building voices. Sent between processes; loads engines when needed."""

    config: CustomVoicesConfig

    @property
    def engine(self) -> str:
        """The name of the engine that the voice is built for."""
        engine: str = TTS.read(self.config.model).engine
        return engine

    @property
    def most_workers(self) -> int:
        """The maximum of workers that are useful at once."""
        return 1

    @property
    def gpus(self) -> float:
        """The share of a GPU per worker."""
        return 0.0

    @abstractmethod
    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> AnyFit:
        """Creates the fit. Blocks for some seconds. Raises InvalidAudio or EngineError."""

    @abstractmethod
    def trials(self, target: Any) -> AnyTrials:
        """Loads a worker's engines. Blocks for some seconds. Raises EngineError."""

    def load_encoder(self) -> SpeakerEncoder:
        """Raises EngineError."""
        return load(SPEAKER, self.config.work.encoder, WeightStore(weights_dir()))


def configured_maker() -> Maker:
    """The method in `configs/custom_voices.yaml`. Raises ValidationError."""
    config = load_yaml(CustomVoicesConfig, "custom_voices")
    return FitMaker(config) if config.method == "fit" else PromptMaker(config)


class FitMaker(Maker):
    """Searches for a style vector of the engine."""

    @property
    def most_workers(self) -> int:
        return self.config.work.most_workers

    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> "Fit":
        """Every attempt has the same seed, so that a resumed one has the same result."""
        from pipelines.voices.fitting.fit import Fit

        return Fit.begin(
            samples,
            claimed.language,
            claimed.gender,
            self.config.fit,
            self.load_encoder(),
            checkpoint=state,
            british=claimed.accent == "British",
        )

    def trials(self, target: "Target") -> "Trials":
        """The engine computes on one thread."""
        from pipelines.voices.fitting.trials import Trials

        store = WeightStore(weights_dir())
        engine, _ = load_model(TTS, self.config.work.model, store, threads=1)
        return Trials(engine, self.load_encoder(), target)


class PromptMaker(Maker):
    """Selects the recording that a large cloning engine uses."""

    @property
    def gpus(self) -> float:
        return self.config.prompt.gpus if self.config.prompt.judge else 0.0

    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> "PromptFit":
        from pipelines.voices.fitting.prompt import PromptFit

        prompt = self.config.prompt
        vad = load(VAD, prompt.vad, WeightStore(weights_dir()))
        return PromptFit.begin(samples, claimed.language, prompt, vad, self.load_encoder())

    def trials(self, target: "PromptTarget") -> "PromptTrials":
        from pipelines.voices.fitting.prompt import PromptTrials
        from pipelines.voices.fitting.trials import load_speech_raters

        prompt, store = self.config.prompt, WeightStore(weights_dir())
        engine = load_model(TTS, prompt.model, store)[0] if prompt.judge else None
        return PromptTrials(engine, load_speech_raters(), self.load_encoder(), target)
