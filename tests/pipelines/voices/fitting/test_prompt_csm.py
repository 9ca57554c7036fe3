"""From recordings to speech with a CSM engine of random weights."""

from pathlib import Path

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.models.tts import CsmConfig
from configs.schema.voices import CustomVoicesConfig
from models.registry import VAD, load
from models.tts.base import PackRef, SynthesisRequest
from models.tts.voice_pack import pack_digest
from models.weights.store import WeightStore
from pipelines.voices.fitting.prompt import PromptFit, PromptTrials
from pipelines.voices.fitting.trials import SpeechRaters
from pipelines.voices.report import FittedVoice
from tests.pipelines.voices.fitting.test_prompt import FakeSTT, Rater
from tests.pipelines.voices.recordings import recording, wav

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)

from models.tts.csm import engine as csm_engine  # noqa: E402 it imports the libraries
from tests.models.speaker.bands import BandsEngine  # noqa: E402
from tests.models.tts.csm.tiny_csm import make_tiny_csm  # noqa: E402


def test_csm_speaks_with_a_voice_pack_fitted_from_recordings(
    tmp_path: Path, weights: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_csm(tmp_path)
    monkeypatch.setattr(WeightStore, "folder", lambda store, name: tmp_path)
    monkeypatch.setattr(csm_engine, "SLOWEST_S", 0.02)  # random weights hardly ever end a sentence
    shipped = load_yaml(CsmConfig, "tts/csm")
    engine = csm_engine.CsmEngine(
        shipped.model_copy(update={"device": "cpu", "dtype": "float32"}), weights
    )
    prompt = load_yaml(CustomVoicesConfig, "custom_voices").prompt
    config = prompt.model_copy(update={"min_similarity": -1, "candidates": 1})
    encoder = BandsEngine()
    samples = [wav(recording(number, 16)) for number in (1, 2, 3)]
    fit = PromptFit.begin(samples, "en", config, load(VAD, "vad/webrtc", weights), encoder)
    trials = PromptTrials(engine, SpeechRaters(FakeSTT(), Rater()), encoder, fit.target)
    fit.observe([trials.run(trial) for trial in fit.next_trials()])
    voice = fit.result()
    assert isinstance(voice, FittedVoice) and voice.report is not None
    assert voice.report.judged is not None
    pack = PackRef(pack_digest(voice.pack), voice.pack)
    request = SynthesisRequest("Good morning.", "custom:1", "en", pack=pack)
    said = np.concatenate([chunk.pcm for chunk in engine.synthesize(request)])
    assert len(said) > 0.2 * engine.capabilities.sample_rate
