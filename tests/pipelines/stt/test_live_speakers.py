"""Speaker labels of live sessions: told with finals, from windows that are embedded meanwhile."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from models.audio import Pcm
from models.speaker.base import Embeddings
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from models.stt.options import RecognitionOptions
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.diarization import SpeakerVoice
from pipelines.stt.endpointing import SilenceTurns
from pipelines.stt.live_speakers import SpeakerOptions
from tests.models.speaker.bands import BandsEngine
from tests.patience import until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, tone
from tests.pipelines.stt.test_session import listening

LOW, HIGH = 200.0, 3000.0


class CountingEncoder(BandsEngine):
    """Counts the windows that it embeds."""

    windows = 0

    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        self.windows += len(windows)
        return super().embed_pieces(pcm, windows)


@pytest.fixture
def encoder() -> CountingEncoder:
    return CountingEncoder()


@pytest.fixture
def model() -> FakeTranscriber:
    """Hears a word every 0.25 s, named after its start."""

    def answer(_number: int, request: TranscriptionRequest) -> Transcript:
        starts = np.arange(0.3, len(request.pcm) / 16_000 - 0.2, 0.25).tolist()
        words = tuple(Word(f"{start:g}", start, start + 0.2, 0.9) for start in starts)
        words = words if request.options.words else ()
        text = " ".join(f"{start:g}" for start in starts)
        segment = Segment(text, 0.0, len(request.pcm) / 16_000, -0.1, 0.0, words)
        return Transcript("en", 0.9, (segment,))

    fake = FakeTranscriber()
    fake.answer = answer
    return fake


async def test_each_final_and_each_word_has_a_label_that_stays(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    async with listening(model, SessionOptions(speakers=SpeakerOptions(encoder))) as live:
        for hz in (LOW, HIGH, LOW, HIGH):
            await live.hear(tone(hz, 2), quiet(1))
        await live.listener.finish()
    assert [final.speaker for final in live.finals] == ["A", "B", "A", "B"]
    for final in live.finals:
        assert final.speakers == [final.speaker] * len(final.words) != []
        (turn,) = final.turns
        assert (turn.text, turn.words) == (final.text, final.words)


async def test_two_speakers_without_a_pause_are_two_turns_of_one_final(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    async with listening(model, SessionOptions(speakers=SpeakerOptions(encoder))) as live:
        await live.hear(quiet(1), tone(LOW, 3), tone(HIGH, 5), quiet(1))
        await live.listener.finish()
    (final,) = live.finals
    first, second = final.turns
    assert (first.speaker, second.speaker, final.speaker) == ("A", "B", "B")
    assert first.end == pytest.approx(4, abs=0.5) and second.end == pytest.approx(9, abs=0.3)
    assert final.speakers == ["A"] * len(first.words) + ["B"] * len(second.words)


async def test_speech_is_embedded_while_it_is_heard_and_only_once(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    async with listening(model, SessionOptions(speakers=SpeakerOptions(encoder))) as live:
        for heard_s in range(1, 11):
            await live.hear(tone(LOW, 1))
            least = 2 * heard_s - 3
            await until(lambda least=least: encoder.windows >= least)  # type: ignore[misc]
        await live.hear(quiet(1))
        await live.listener.finish()
    assert encoder.windows <= 24
    assert len(live.finals) == 1


async def test_without_words_a_final_has_one_turn(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    options = SessionOptions(
        recognition=RecognitionOptions(),
        turns=SilenceTurns(silence_ms=500),
        speakers=SpeakerOptions(encoder),
    )
    async with listening(model, options) as live:
        await live.hear(tone(LOW, 2), quiet(1), tone(HIGH, 2), quiet(1))
        await live.listener.finish()
    assert [[turn.speaker for turn in final.turns] for final in live.finals] == [["A"], ["B"]]
    assert live.finals[1].turns[0].text == live.finals[1].text


async def test_clicks_short_sounds_and_empty_commits_do_no_harm(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    async with listening(model, SessionOptions(speakers=SpeakerOptions(encoder))) as live:
        await live.listener.commit()
        await live.hear(quiet(1), tone(LOW, 0.3), quiet(1), tone(HIGH, 0.05), quiet(1))
        await live.hear(tone(HIGH, 2))
        live.listener.clear()
        await live.hear(quiet(1), tone(HIGH, 2))
        await live.listener.commit()
        await live.listener.finish()
    assert [final.speaker for final in live.finals if final.text] == ["A", "A"]
    assert all(final.turns == () for final in live.finals if not final.text)


async def test_a_long_utterance_that_is_cut_goes_on_with_the_same_speaker(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    async with listening(model, SessionOptions(speakers=SpeakerOptions(encoder))) as live:
        await live.hear(tone(LOW, 40), quiet(1))
        await live.listener.finish()
    assert [(final.cut, final.speaker) for final in live.finals] == [(True, "A"), (False, "A")]


async def test_a_known_speaker_is_told_by_name(
    model: FakeTranscriber, encoder: CountingEncoder
) -> None:
    voice = encoder.embed_pieces(tone(HIGH, 2), [(0, 25_600)])[0]
    known = (SpeakerVoice(voice.astype(np.float64), math.inf, "Ann"),)
    options = SessionOptions(speakers=SpeakerOptions(encoder, known))
    async with listening(model, options) as live:
        await live.hear(tone(LOW, 2), quiet(1), tone(HIGH, 2), quiet(1), tone(LOW, 2), quiet(1))
        await live.listener.finish()
    assert [final.speaker for final in live.finals] == ["A", "Ann", "A"]


async def test_without_labels_no_speech_is_embedded_and_finals_have_no_turns(
    model: FakeTranscriber,
) -> None:
    async with listening(model) as live:
        await live.hear(loud(2), quiet(1))
    assert [(final.turns, final.speaker) for final in live.finals] == [((), None)]
