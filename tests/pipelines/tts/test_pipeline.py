"""The speech pipeline over the tone engine and scripted speakers."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from configs.schema.voices import VoiceRef, VoicesConfig
from models.audio import AudioChunk
from models.base import ModelInfo, VoiceInfo
from models.errors import EngineLost
from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.errors import InvalidRequest, UnreadableText, VoiceNotFound
from pipelines.ports import TTSModel
from pipelines.tts.pacing import IN_FLIGHT
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from tests.engines import TONE
from tests.local_ports import LocalTTSModel
from tests.pipelines.audio.reference_loudness import measure_lufs
from tests.pipelines.stt.voiced import speak

CONFIG = VoicesConfig(
    defaults={"en": VoiceRef(engine="fake", key="b"), "de": VoiceRef(engine="fake", key="gone")}
)
VOICES = (
    VoiceInfo("fake", "a", "Ann", "en", "female", "American"),
    VoiceInfo("fake", "b", "Bob", "en", "male", "British"),
    VoiceInfo("fake", "d", "Dora", "de", "female", "Neutral"),
)
INFO = ModelInfo("svc/fake", "tts", "fake", "x", 0, ("en", "de"), sample_rate=16_000, voices=VOICES)


class ScriptedSpeaker(TTSModel):
    """Synthesises 0.2 s of tone a call; records the requests."""

    def __init__(self, info: ModelInfo = INFO, *, delay_s: float = 0.0) -> None:
        self.info = info
        self.calls: list[SynthesisRequest] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.closed = 0
        self.down = False
        self._delay_s = delay_s

    async def describe(self) -> ModelInfo:
        if self.down:
            raise EngineLost("down")
        return self.info

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.calls.append(request)
        level = 0.05 * len(self.calls)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            # Later sentences are quicker, so their order must be kept on purpose.
            await asyncio.sleep(self._delay_s / len(self.calls))
            if self.down:
                raise EngineLost("down")
            time_s = np.arange(3200) / 16_000
            pcm = (level * np.sin(2 * np.pi * 400 * time_s)).astype(np.float32)
            yield AudioChunk(pcm[:1600], 16_000)
            await asyncio.sleep(self._delay_s)
            yield AudioChunk(pcm[1600:], 16_000)
        finally:
            self.in_flight -= 1
            self.closed += 1


def pipeline(**speakers: ScriptedSpeaker) -> SpeechPipeline:
    return SpeechPipeline(speakers, CONFIG)


async def chosen(
    speech: SpeechPipeline,
    text: str = "Hello there my friend.",
    voice: str | None = None,
    voice_id: str | None = None,
) -> str:
    plan = await speech.plan(SpeechRequest(text, voice_id=voice_id, voice=voice))
    return plan.voice.info.key


async def test_voices_are_found_by_name_or_id_only() -> None:
    speech = pipeline(one=ScriptedSpeaker())
    assert await chosen(speech, voice="aNN") == "a"
    assert await chosen(speech, voice_id=VOICES[2].voice_id.upper()) == "d"
    assert await chosen(speech, voice_id=VOICES[2].voice_id, voice="Ann") == "d"
    for wrong in ({"voice": "Zoe"}, {"voice_id": "Ann"}, {"voice_id": "x", "voice": "Ann"}):
        with pytest.raises(VoiceNotFound):
            await chosen(speech, **wrong)


async def test_without_a_voice_name_the_language_of_the_text_selects_the_voice() -> None:
    speech = pipeline(one=ScriptedSpeaker())
    assert await chosen(speech) == "b"
    # The configured voice of German is not deployed, another German one is.
    assert await chosen(speech, text="Ich habe heute leider keine Zeit.") == "d"
    with pytest.raises(UnreadableText, match="你好世界"):
        await chosen(speech, text="你好世界")


async def test_a_lost_model_does_not_affect_the_voices_of_others() -> None:
    dead = ScriptedSpeaker(replace(INFO, id="svc/dead"))
    dead.down = True
    assert await chosen(pipeline(dead=dead, one=ScriptedSpeaker())) == "b"
    with pytest.raises(EngineLost):
        await chosen(pipeline(dead=dead))


async def test_a_model_removed_after_the_plan_is_unavailable() -> None:
    speakers = {"one": ScriptedSpeaker()}
    speech = SpeechPipeline(speakers, CONFIG)
    plan = await speech.plan(SpeechRequest("Hello there my friend."))
    speakers.clear()
    with pytest.raises(EngineLost):
        await anext(speech.stream(plan))


async def test_voice_not_found_is_raised_only_when_all_models_are_available() -> None:
    late = ScriptedSpeaker(replace(INFO, id="svc/late"))
    late.down = True
    speech = pipeline(one=ScriptedSpeaker(), late=late)
    with pytest.raises(EngineLost, match="try again soon"):
        await chosen(speech, voice="Zoe")
    late.down = False
    with pytest.raises(VoiceNotFound):
        await chosen(speech, voice="Zoe")


async def test_a_voice_whose_model_was_lost_is_unavailable_not_unknown() -> None:
    speaker = ScriptedSpeaker()
    speech = pipeline(one=speaker)
    assert len(await speech.directory.voices()) == 3
    speaker.down = True
    with pytest.raises(EngineLost):
        await speak(speech, SpeechRequest("Hello.", voice="Ann"))


async def test_sentences_are_ordered_calls_with_at_most_two_in_flight() -> None:
    speaker = ScriptedSpeaker(delay_s=0.25)  # long enough for a busy machine to ask for the next
    speech = pipeline(one=speaker)
    text = "One is here. Two is here. Three is here. Four is here.\nFive."
    said = await speak(speech, SpeechRequest(text, voice="Ann", enhance=False))
    assert [call.text for call in speaker.calls] == [
        *("One is here.", "Two is here.", "Three is here.", "Four is here.", "Five.")
    ]
    assert speaker.most_in_flight == IN_FLIGHT
    starts = [round(start_s * 16_000) for start_s in (0, 0.38, 0.76, 1.14, 1.79)]
    levels = [np.max(np.abs(said.audio.pcm[start : start + 3000])) for start in starts]
    assert levels == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25], rel=0.1)
    # 5 × 0.2 s of speech, 3 pauses of 0.18 s and one between paragraphs of 0.45 s.
    assert said.audio.duration_s == pytest.approx(1.0 + 3 * 0.18 + 0.45, abs=0.02)


@pytest.mark.parametrize("text", ["", " \n ", "!!!", "\U0001f600", "\u200b"])
async def test_text_without_anything_to_speak_is_an_invalid_request(text: str) -> None:
    with pytest.raises(InvalidRequest, match="text"):
        await speak(pipeline(one=ScriptedSpeaker()), SpeechRequest(text))


async def test_speech_of_native_speed_is_not_stretched_again() -> None:
    speaker = ScriptedSpeaker(replace(INFO, native_speed=True))
    said = await speak(pipeline(one=speaker), SpeechRequest("Hello.", speed=2.0))
    assert speaker.calls[0].speed == 2.0
    assert said.audio.duration_s == pytest.approx(0.2, abs=0.01)
    other = ScriptedSpeaker()
    said = await speak(pipeline(one=other), SpeechRequest("Hello.", speed=2.0))
    assert other.calls[0].speed == 1.0
    assert said.audio.duration_s == pytest.approx(0.1, abs=0.01)


async def test_enhance_sets_the_target_loudness_and_without_it_the_level_is_unchanged(
    tmp_path: Path,
) -> None:
    engine, info = load_model(TTS, TONE, WeightStore(tmp_path))
    speech = SpeechPipeline({"tone": LocalTTSModel(engine, info)}, CONFIG)
    text = "Hello there, this is a test. And this is another."
    enhanced = (await speak(speech, SpeechRequest(text))).audio
    plain = (await speak(speech, SpeechRequest(text, enhance=False))).audio
    assert measure_lufs(enhanced.pcm, enhanced.sample_rate) == pytest.approx(-16, abs=0.5)
    assert np.max(np.abs(plain.pcm)) == pytest.approx(0.3, abs=0.01)


async def test_numbers_are_spoken_in_the_language_of_the_voice() -> None:
    speaker = ScriptedSpeaker()
    await speak(pipeline(one=speaker), SpeechRequest("It costs 5 today.", voice="Dora"))
    assert speaker.calls[0].text == "It costs fünf today."
    assert speaker.calls[0].language == "de"


async def test_a_swapped_model_is_described_again_and_its_voice_is_used() -> None:
    """The first description is of the replaced model, whose voice the engine does not know."""
    engine, info = load_model(TTS, TONE, WeightStore(Path("unused")))
    gone = replace(info, voices=(replace(info.voices[0], key="gone"),))

    class Swapped(LocalTTSModel):
        described = 0

        async def describe(self) -> ModelInfo:
            self.described += 1
            return gone if self.described == 1 else info

    pipeline = SpeechPipeline({"tone": Swapped(engine, info)}, CONFIG)
    said = await speak(pipeline, SpeechRequest("Hello there."))
    assert len(said.audio.pcm)
