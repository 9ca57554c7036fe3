"""A voice fit with the real engines, with as few trials as possible."""

import pytest

from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from models.errors import WeightsMissing
from models.registry import SPEAKER, load
from models.tts.kokoro.engine import KokoroEngine
from models.tts.voice_pack import read_pack
from models.weights.store import WeightStore
from pipelines.voices.fitting.fit import Fit
from pipelines.voices.fitting.trials import Trials
from pipelines.voices.report import FittedVoice
from tests.pipelines.voices.fitting.world import CONFIG
from tests.pipelines.voices.recordings import recording, wav

SHORT = CONFIG.model_copy(
    update={
        "evaluations": 4,
        "generation": 4,
        "choice_sentences": 1,
        "judge_sentences": 1,
        "min_similarity": 0.0,
    }
)


@pytest.mark.weights
@pytest.mark.slow
def test_a_fitted_voice_is_closer_to_its_speaker_than_any_stock_voice(weights: WeightStore) -> None:
    try:
        encoder = load(SPEAKER, "speaker/resemblyzer", weights)
        config = load_yaml(KokoroConfig, "tts/kokoro").model_copy(update={"threads": 2})
        engine = KokoroEngine(config, weights)
    except WeightsMissing as error:
        pytest.skip(str(error))
    recordings = [wav(recording(number, 12.0, deep=True)) for number in (1, 2)]
    fit = Fit.begin(recordings, "en", "male", SHORT, encoder)
    trials = Trials(engine, encoder, fit.target)
    while asked := fit.next_trials():
        fit.observe([trials.run(trial) for trial in asked])
    voice = fit.result()
    assert isinstance(voice, FittedVoice)
    assert voice.report is not None and (judged := voice.report.judged) is not None
    assert voice.similarity > (judged.stock_similarity or 1.0)
    assert (judged.wer or 0.0) < 0.2 and (judged.dnsmos or 0.0) > 2.5
    assert read_pack(voice.pack).style.shape == (510, 256)
