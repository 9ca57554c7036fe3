"""The methods of building voices: their fits, and the engines of their trials."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from configs.settings import weights_dir
from db.voices.voices import Voice
from models.base import ModelInfo
from models.registry import SPEAKER, TTS, VAD, load, load_model
from models.speaker.base import SpeakerEncoder
from models.weights.store import WeightStore

if TYPE_CHECKING:
    from pipelines.voices.fitting.fit import Fit
    from pipelines.voices.fitting.prompt import PromptFit, PromptTarget, PromptTrials
    from pipelines.voices.fitting.trials import Target, Trials

# Imports are inside functions, so that each process imports only what it uses.

AnyFit: TypeAlias = Union["Fit", "PromptFit"]
AnyTrials: TypeAlias = Union["Trials", "PromptTrials"]


@dataclass(frozen=True, slots=True)
class Maker(ABC):
    """A method of building voices. It is sent between processes, and loads engines when needed."""

    config: CustomVoicesConfig
    model: str  # the path under configs/ of the engine that the voice is built for
    most_workers: int = 1  # number of workers in parallel
    gpus: float = 0.0  # the share of a GPU for each worker

    @property
    def engine(self) -> str:
        """Return the name of the engine."""
        engine: str = TTS.read(self.model).engine
        return engine

    @abstractmethod
    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> AnyFit:
        """Create the fit. Blocks for some seconds. Raises InvalidAudio or EngineError."""

    @abstractmethod
    def trials(self, target: Any) -> AnyTrials:
        """Load a worker's engines. Blocks for some seconds. Raises EngineError."""

    def load_encoder(self) -> SpeakerEncoder:
        """Load the speaker encoder. Raises EngineError."""
        return load(SPEAKER, self.config.work.encoder, WeightStore(weights_dir()))


def maker_for(language: str, deployed: Iterable[ModelInfo]) -> Maker:
    """Return the method of building a voice of that language, by `configs/custom_voices.yaml` and
    the deployed models. Raises ValidationError."""
    config = load_yaml(CustomVoicesConfig, "custom_voices")
    prompt, fit = config.prompt, FitMaker(config, config.work.model, config.work.most_workers)
    if config.method == "fit":
        return fit
    engine = TTS.read(prompt.model).engine
    model = next((info for info in deployed if info.engine == engine), None)
    if config.method == "auto" and (model is None or language not in model.languages):
        return fit
    takes_gpu = prompt.judge and (model is None or model.device != "cpu")
    return PromptMaker(
        config,
        prompt.model,
        gpus=prompt.gpus if takes_gpu else 0.0,
        transcribed=model is None or model.pack == "transcribed recording",
    )


class FitMaker(Maker):
    """Searches for a style vector of the engine."""

    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> "Fit":
        """Create the fit, with the same seed in every attempt, so that a resumed attempt has the
        same result."""
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
        """Load a worker's engines; they compute on one thread."""
        from pipelines.voices.fitting.trials import Trials

        store = WeightStore(weights_dir())
        engine, _ = load_model(TTS, self.config.work.model, store, threads=1)
        return Trials(engine, self.load_encoder(), target)


@dataclass(frozen=True, slots=True)
class PromptMaker(Maker):
    """Selects the recording that a cloning engine continues."""

    transcribed: bool = True  # whether the engine reads the words of the recording

    def begin(self, claimed: Voice, samples: list[bytes], state: bytes | None) -> "PromptFit":
        from pipelines.voices.fitting.prompt import PromptFit

        prompt = self.config.prompt
        vad = load(VAD, prompt.vad, WeightStore(weights_dir()))
        return PromptFit.begin(
            samples,
            claimed.language,
            prompt,
            vad,
            self.load_encoder(),
            transcribed=self.transcribed,
        )

    def trials(self, target: "PromptTarget") -> "PromptTrials":
        from pipelines.voices.fitting.prompt import PromptTrials
        from pipelines.voices.fitting.trials import load_speech_raters

        prompt, store = self.config.prompt, WeightStore(weights_dir())
        engine = load_model(TTS, prompt.model, store)[0] if prompt.judge else None
        return PromptTrials(engine, load_speech_raters(), self.load_encoder(), target)
