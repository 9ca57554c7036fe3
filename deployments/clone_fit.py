"""What a voice is made with: the fit, and what hears its trials, of `configs/cloning.yaml`."""

from dataclasses import dataclass

from configs.cloning_schema import CloningConfig
from configs.load import load_yaml
from configs.settings import weights_dir
from models.weights.store import WeightStore
from pipelines.cloning.fit import Fit
from pipelines.cloning.trials import Target, Trials
from pipelines.voice_queue import ClaimedVoice

# Imports inside functions: engines are imported where one is loaded.


@dataclass(frozen=True, slots=True)
class Maker:
    """Crosses processes, and loads nothing before it is asked."""

    def engine(self) -> str:
        """The name of the engine that speaks what is made. Raises ValidationError."""
        from pydantic import TypeAdapter

        from configs.tts_schema import TTSConfig

        config: TTSConfig = load_yaml(TypeAdapter(TTSConfig), _cloning().work.model)
        return config.engine

    def begin(self, claimed: ClaimedVoice, samples: list[bytes], state: bytes | None) -> Fit:
        """Blocks for some seconds. Raises InvalidAudio or EngineError.

        Every attempt has the same seed, so that one that resumes decides as the one before.
        """
        from models.loading import load_speaker_encoder

        config = _cloning()
        encoder = load_speaker_encoder(config.work.encoder, WeightStore(weights_dir()))
        about = (samples, claimed.language, claimed.gender, config.fit, encoder, config.fit.seed)
        return Fit.begin(*about) if state is None else Fit.resume(*about, state)

    def listener(self, target: Target) -> Trials:
        """Blocks for some seconds. Raises EngineError. Its engine computes on one thread."""
        from models.loading import load_speaker_encoder, load_tts

        work, weights = _cloning().work, WeightStore(weights_dir())
        engine, _ = load_tts(work.model, weights, threads=1)
        return Trials(engine, load_speaker_encoder(work.encoder, weights), target)


def _cloning() -> CloningConfig:
    return load_yaml(CloningConfig, "cloning")
