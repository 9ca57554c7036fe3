"""A new model is rehearsed before it serves, and gets a share of the requests as a canary: the
deployment classes, without Ray."""

import gc
import weakref
from collections.abc import Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
import yaml

from deployments.replicas import rehearsal
from deployments.replicas.canary import LEAST_FAILED
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from deployments.rollout.deploy import model_problems
from models.audio import AudioChunk
from models.base import RunningCanary
from models.errors import EngineError, EngineOverloaded, ModelNotLoaded, PackMissing, UnknownVoice
from models.llm.base import ChatMessage, GenerationRequest
from models.stt.base import Segment, Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from telemetry import metrics
from tests.deployments.replicas.test_swap import failed_swaps
from tests.engines import ECHO, ECHO_SLOW, SCRIPTED, SCRIPTED_SLOW, TONE, TONE_LOW

ALTO = SynthesisRequest("some words to say", "alto", "en")
BASS = SynthesisRequest("some words to say", "bass", "en")
EVERY = {"model": TONE, "canary": {"model": TONE_LOW, "share": 1.0}}


async def speech(replica: TTSDeployment, request: SynthesisRequest, name: str = "a") -> float:
    chunks = replica.synthesize(request, {"x-request-id": name})
    return sum([chunk.duration_s async for chunk in chunks])


def served() -> dict[tuple[str, str], float]:
    """How many requests each model ended, by outcome."""
    [family] = metrics.engine_requests.collect()
    return {
        (sample.labels["model"], sample.labels["outcome"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }


@pytest.fixture(autouse=True)
def counted_from_here() -> None:
    metrics.engine_requests.clear()


@dataclass
class Failing:
    """What the canary's engine raises, first before any audio or after some of it."""

    error: Exception
    times: int
    late: bool = False

    def install(self, replica: TTSDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
        assert replica._canary is not None
        engine = replica._canary.model[0]
        speak = engine.synthesize

        def synthesize(request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
            if self.times:
                self.times -= 1
                if self.late:
                    yield next(speak(request))
                raise self.error
            yield from speak(request)

        monkeypatch.setattr(engine, "synthesize", synthesize)


async def trial(monkeypatch: pytest.MonkeyPatch, failing: Failing) -> TTSDeployment:
    replica = TTSDeployment()
    await replica.reconfigure(EVERY)
    failing.install(replica, monkeypatch)
    return replica


async def test_a_canary_gets_its_share_of_whole_requests() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE, "canary": {"model": TONE_LOW, "share": 0.2}})
    for number in range(200):
        for _ in range(2):  # two sentences of one request
            assert await speech(replica, BASS, f"request {number}") > 0
    counts = served()
    assert sum(counts.values()) == 400 and counts["svc/tts-tone-low", "ok"] % 2 == 0
    assert 0.1 < counts["svc/tts-tone-low", "ok"] / 400 < 0.3
    info = await replica.describe()  # which clients see
    assert info.id == "svc/tts-tone"
    assert info.canary == RunningCanary(id="svc/tts-tone-low", share=0.2)


async def test_a_canary_that_becomes_the_model_is_not_loaded_again() -> None:
    replica = TTSDeployment()
    await replica.reconfigure(EVERY)
    assert replica._canary is not None
    engine, old = replica._canary.model[0], weakref.ref(replica.engine())
    await replica.reconfigure({"model": TONE_LOW})
    info = await replica.describe()
    assert replica.engine() is engine and (info.id, info.canary) == ("svc/tts-tone-low", None)
    await replica.stop_warm_up()
    gc.collect()
    assert old() is None, "the old model still takes memory"


async def test_a_canary_that_is_given_up_leaves_the_model_in_place() -> None:
    replica = TTSDeployment()
    await replica.reconfigure(EVERY)
    engine = replica.engine()
    await replica.reconfigure({"model": TONE})
    assert replica.engine() is engine and replica._canary is None


async def test_the_model_repeats_what_its_canary_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = await trial(monkeypatch, Failing(EngineError("broken"), 99))
    whole = len(ALTO.text) * 0.06
    for number in range(LEAST_FAILED + 2):
        assert await speech(replica, BASS, str(number)) == pytest.approx(whole, abs=0.1)
    assert served() == {
        ("svc/tts-tone-low", "internal_error"): LEAST_FAILED,
        ("svc/tts-tone", "ok"): LEAST_FAILED + 2,
    }
    assert replica._canary is None
    assert failed_swaps() == {TONE: 0, TONE_LOW: 1}


async def test_a_canary_that_cannot_be_loaded_is_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replica, problems = TTSDeployment(), list[str]()
    await replica.reconfigure({"model": TONE})
    monkeypatch.setattr(replica, "_reports", AsyncMock())
    monkeypatch.setattr(replica, "_report_problem", problems.append)
    await replica.reconfigure({"model": TONE, "canary": {"model": "tts/nothing", "share": 1.0}})
    assert problems[0].startswith("the canary was refused: tts/nothing cannot be loaded: no conf")
    assert failed_swaps() == {TONE: 0, "tts/nothing": 1}
    assert await speech(replica, ALTO) > 0 and replica._canary is None
    await replica.reconfigure(EVERY)
    assert problems[1:] == [""] and failed_swaps() == {TONE: 0, TONE_LOW: 0}
    await replica.reconfigure({"model": TONE_LOW})
    assert failed_swaps() == {TONE_LOW: 0}


async def test_a_canary_without_the_voice_of_a_request_does_not_fail_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica = await trial(monkeypatch, Failing(EngineError("never"), 0))
    assert await speech(replica, ALTO) > 0
    with pytest.raises(UnknownVoice):  # that neither has: not the canary's failure
        await speech(replica, SynthesisRequest("Hello", "none", "en"))
    assert replica._canary is not None and replica._canary._failed == 1
    assert served() == {
        ("svc/tts-tone-low", "voice_not_found"): 2,
        ("svc/tts-tone", "ok"): 1,
        ("svc/tts-tone", "voice_not_found"): 1,
    }


async def test_a_canary_that_breaks_off_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = await trial(monkeypatch, Failing(EngineError("broken"), LEAST_FAILED, late=True))
    for _ in range(LEAST_FAILED):
        with pytest.raises(EngineError, match="broken"):  # part of it was sent
            await speech(replica, BASS)
    assert replica._canary is None
    assert await speech(replica, BASS) > 0


@pytest.mark.parametrize("error", [EngineOverloaded("full"), PackMissing("send it")])
async def test_a_full_canary_or_one_without_the_pack_has_not_failed(
    error: EngineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await trial(monkeypatch, Failing(error, LEAST_FAILED + 1))
    for _ in range(LEAST_FAILED + 1):
        if isinstance(error, PackMissing):
            with pytest.raises(PackMissing):
                await speech(replica, BASS)
        else:
            assert await speech(replica, BASS) > 0
    assert replica._canary is not None and replica._canary._failed == 0


async def test_recognition_and_chat_have_canaries_too() -> None:
    stt, chat = STTDeployment(), ChatDeployment()
    await stt.reconfigure({"model": SCRIPTED, "canary": {"model": SCRIPTED_SLOW, "share": 1.0}})
    await chat.reconfigure({"model": ECHO, "canary": {"model": ECHO_SLOW, "share": 1.0}})
    assert await stt.transcribe(TranscriptionRequest(np.ones(16_000, np.float32), "en"))
    async with aclosing(chat.generate(GenerationRequest((ChatMessage("user", "a"),)))) as deltas:
        assert "".join([delta.text async for delta in deltas]) == "a"
    models = {model for model, outcome in served() if outcome == "ok"}
    assert stt._canary is not None and chat._canary is not None
    assert models == {stt._canary.model[1].id, chat._canary.model[1].id}
    assert stt.load() == 0


def silent(request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
    yield AudioChunk(np.zeros(24_000, np.float32), 24_000)


def endless(request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
    yield AudioChunk(np.full(100 * 8000, 0.1, np.float32), 8000)


def nothing(request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
    yield from ()


@pytest.mark.parametrize(
    ("speak", "reason"),
    [(silent, "is silent for"), (endless, "speaks 100.0 s"), (nothing, "0.0 s")],
)
async def test_a_model_that_fails_its_rehearsal_gets_no_traffic(
    speak: Callable[..., Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})
    load, problems = replica.load_now, list[str]()

    def load_broken(name: str) -> Any:
        loaded = load(name)
        monkeypatch.setattr(loaded[0], "synthesize", speak)
        return loaded

    monkeypatch.setattr(replica, "load_now", load_broken)
    monkeypatch.setattr(replica, "_report_problem", problems.append)
    with pytest.raises(ModelNotLoaded, match="failed its rehearsal.*" + reason):
        await replica._load(TONE_LOW)
    await replica.reconfigure({"model": TONE_LOW})
    assert (await replica.describe()).id == "svc/tts-tone"


class Recogniser:
    """Hears the texts that it is given, one after the other."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        return Transcript("en", 1.0, (Segment(self._texts.pop(0), 0.0, 1.0, 0.0, 0.0),))


@pytest.mark.parametrize(
    ("new", "old", "good"),
    [
        ("Apple, bridge, candle desert.", "apple bridge candle desert", True),
        ("Thank you.", "Apple, bridge, candle, desert", False),
        ("Thank you.", "you", True),  # the model before was not understood either
    ],
)
async def test_a_voice_is_heard_as_well_as_the_voice_before(
    new: str, old: str, good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beside(kind: str, port: object) -> Recogniser:
        return Recogniser(new, old)

    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})
    monkeypatch.setattr(rehearsal, "_beside", beside)
    await replica.reconfigure({"model": TONE_LOW})
    assert (await replica.describe()).id == ("svc/tts-tone-low" if good else "svc/tts-tone")


def test_a_deployment_is_checked_with_its_canaries(tmp_path: Path) -> None:
    config = yaml.safe_load(Path("serve_config.yaml").read_text())
    [models] = [one for one in config["applications"] if one["name"] == "models"]
    [fast] = [one for one in models["deployments"] if one["name"] == "TTSFast"]
    fast["user_config"]["canary"] = {"model": "tts/nothing"}
    [problem] = model_problems(config)
    assert problem.startswith("TTSFast: tts/nothing: no configuration")
    fast["user_config"]["canary"] = {"model": "tts/espeak", "share": 1.5}
    [problem] = model_problems(config)
    assert "canary.share" in problem
    fast["user_config"]["canary"] = {"model": "tts/espeak"}
    assert not model_problems(config)
