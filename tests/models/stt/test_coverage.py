"""Speech that no word covers is found, and is decoded again alone."""

from collections.abc import Sequence

import numpy as np
import pytest

from models.audio import Pcm
from models.errors import WeightsMissing
from models.registry import VAD, load
from models.stt.base import STT_SAMPLE_RATE, Segment, Transcript, TranscriptionRequest, Word
from models.stt.coverage import cut, cut_at, words_of
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.job import DecodingJob, with_budget
from models.weights.store import WeightStore
from pipelines.audio.segments import SpeechSegment, spans_of
from tests.models.sounds import speak

REPEATED = (
    "Please send the invoice to the office by Monday.",
    *["The ferry to the island was late because of the fog."] * 4,
    *["I could not hear the announcement over the noise."] * 3,
    "Nobody answered when I knocked on the door.",
)


def request(seconds: float, *speech_s: tuple[float, float]) -> TranscriptionRequest:
    spans = tuple((samples(start), samples(end)) for start, end in speech_s)
    return TranscriptionRequest(np.zeros(samples(seconds), np.float32), speech=spans)


def samples(seconds: float) -> int:
    return round(seconds * STT_SAMPLE_RATE)


def words(*times: tuple[float, float], text: str = "word") -> list[Word]:
    return [Word(text, start, end, 1.0) for start, end in times]


def cut_s(asked: TranscriptionRequest, heard: Sequence[Word]) -> float | None:
    at = cut_at(asked, heard)
    return None if at is None else at / STT_SAMPLE_RATE


def test_speech_with_words_is_not_cut() -> None:
    said = [(at / 2, at / 2 + 0.5) for at in range(20)]
    assert cut_s(request(10, (0.2, 4.8), (5.2, 9.9)), words(*said)) is None
    assert cut_s(request(10), []) is None, "no speech"
    assert cut_s(request(10, (3, 3.7)), []) is None, "too little to be a word"


def test_a_pause_without_words_is_not_missed_speech() -> None:
    heard = words((0, 0.5), (0.5, 1.0), (7.0, 7.5))
    assert cut_s(request(8, (0, 1), (7, 7.5)), heard) is None


@pytest.mark.parametrize(
    ("heard", "at"),
    [
        (words((0, 0.5), (0.5, 1.0)), 6.25),  # nothing after the first sentence
        (words((0, 0.5), (0.5, 9.4), (9.4, 9.9)), 3.75),  # a word that stretches over others
        (words((4.0, 4.5), (4.5, 5.0), (7.5, 8.5), (8.5, 9.9)), 1.25),  # nothing before
        ([], 3.75),  # dropped as a hallucination
    ],
)
def test_missed_speech_is_cut_at_a_pause(heard: list[Word], at: float) -> None:
    asked = request(10, (0, 1), (1.5, 3.5), (4, 6), (6.5, 9.9))
    assert cut_s(asked, heard) == pytest.approx(at)


def test_a_missing_phrase_between_pauses_is_noticed_first() -> None:
    said = words((0, 0.5), (0.5, 1.0), (5.0, 6.0), (6.0, 7.0), (7.0, 8.0))
    assert cut_s(request(8, (0, 1), (3, 3.6), (5, 8)), said) == pytest.approx(2.0)
    assert cut_s(request(8, (0, 1), (3, 3.4), (5, 8)), said) is None
    assert cut_s(request(8, (0, 1), (4.4, 8)), said) is None


def test_the_text_beside_missed_speech_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = WhisperEngine.__new__(WhisperEngine), list[float]()

    def hear(jobs: Sequence[DecodingJob]) -> list[Transcript]:
        if jobs[0].times:  # this, too, misses the phrase
            return [Transcript("en", 1.0) for _ in jobs]
        asked.extend(len(job.request.pcm) / STT_SAMPLE_RATE for job in jobs)
        return [heard("Replied he.", (1.1, 1.5)) for _ in jobs]

    def with_missed(asked: TranscriptionRequest, whole: Transcript) -> Transcript:
        return engine._with_missed(DecodingJob(asked), whole)

    monkeypatch.setattr(engine, "_decode_once", hear)
    before = with_missed(request(6, (0, 1), (3, 3.6)), heard("I heard.", (0, 0.5), (0.5, 1)))
    assert [one.text for one in before.segments] == ["I heard.", "Replied he."]
    assert [one.start for one in before.segments] == [0.0, pytest.approx(3.1)]
    after = with_missed(request(6, (1, 1.6), (5, 6)), heard("I heard.", (5, 5.5), (5.5, 6)))
    assert [one.text for one in after.segments] == ["Replied he.", "I heard."]
    assert [one.start for one in after.segments] == [pytest.approx(1.1), pytest.approx(5.0)]
    assert asked == pytest.approx([4.0, 3.3])


def test_a_text_with_time_tokens_is_kept_when_it_has_more_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, asked = WhisperEngine.__new__(WhisperEngine), list[bool]()
    whole = heard("But she said,", (0, 0.4), (0.4, 0.8), (0.8, 1.2))
    more = tuple((at / 2, at / 2 + 0.5) for at in range(12))

    def hear(jobs: Sequence[DecodingJob]) -> list[Transcript]:
        asked.extend(job.times for job in jobs)
        assert [job.request.language for job in jobs] == ["en"], "the language is not guessed again"
        return [heard("But she said, whom thou wakest is he.", *more)]

    monkeypatch.setattr(engine, "_decode_once", hear)
    found = engine._with_missed(DecodingJob(request(6, (0, 6))), whole)
    assert found.segments[0].text.endswith("is he.") and found.language == "en"
    assert asked == [True]


def heard(text: str, *times: tuple[float, float]) -> Transcript:
    said = tuple(Word(f"word{at}", start, end, 1.0) for at, (start, end) in enumerate(times))
    return Transcript("en", 1.0, (Segment(text, said[0].start, said[-1].end, -0.2, 0.0, said),))


def test_long_numbers_and_words_are_not_missed_speech() -> None:
    for word in ("1,234,567", "Donaudampfschifffahrtsgesellschaftskapitän"):
        assert cut_s(request(4.5, (0, 4.5)), words((0, 4.5), text=word)) is None


def test_missed_speech_without_a_pause_is_cut_where_it_begins() -> None:
    asked = request(10, (0, 10))
    assert cut_s(asked, words((0, 0.5), (0.5, 1.0), (9.0, 9.9))) == pytest.approx(1.0)
    assert cut_s(asked, []) is None, "both ends are those of the request"


def test_the_parts_have_the_audio_and_the_speech_of_the_whole() -> None:
    asked = request(10, (0, 4), (5, 9))
    parts = cut(asked, samples(6), "en")
    assert [len(part.pcm) for part in parts] == [samples(6), samples(4)]
    assert [part.speech for part in parts] == [
        ((0, samples(4)), (samples(5), samples(6))),
        ((0, samples(3)),),
    ]
    assert {part.language for part in parts} == {"en"}


@pytest.mark.slow
@pytest.mark.weights
def test_repeated_sentences_are_all_in_the_text(
    engine: WhisperEngine, weights: WeightStore
) -> None:
    try:
        vad = load(VAD, "vad/silero", weights)
    except WeightsMissing as error:
        pytest.skip(str(error))
    pcm = _joined([speak(text, weights) for text in REPEATED])
    whole = SpeechSegment(0, len(pcm))
    speech = spans_of(vad.probabilities(pcm), vad.capabilities.frame_samples, whole)
    heard = engine.transcribe([TranscriptionRequest(pcm, "en", speech=speech)])[0]
    text = " ".join(segment.text for segment in heard.segments).lower()
    counts = {key: text.count(key) for key in ("invoice", "ferry", "announcement", "knocked")}
    assert counts == {"invoice": 1, "ferry": 4, "announcement": 3, "knocked": 1}
    times = [word.start for segment in heard.segments for word in segment.words]
    assert times == sorted(times)
    assert times[-1] < len(pcm) / STT_SAMPLE_RATE
    plain = engine.transcribe([TranscriptionRequest(pcm, "en")])[0]
    alone = sum(len(segment.text) for segment in plain.segments)
    assert alone < len(text), "what a single decoding loses"


@pytest.mark.weights
def test_a_text_with_time_tokens_has_only_words(
    engine: WhisperEngine, weights: WeightStore
) -> None:
    said = "They found an old map behind the picture. The ferry was late because of the fog."
    pcm = speak(said, weights)
    asked = TranscriptionRequest(pcm, "en", speech=((0, len(pcm)),))
    [heard] = engine._decode_once([DecodingJob(with_budget(asked), times=True)])
    assert [word.word for word in words_of([heard])] == said.split()
    assert heard.segments[0].text == said


@pytest.mark.weights
@pytest.mark.slow
def test_a_repeated_sentence_is_written_about_as_often(
    engine: WhisperEngine, weights: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = speak("The ferry was late because of the fog.", weights)
    pause = STT_SAMPLE_RATE // 4
    ends = [(at + 1) * (len(sentence) + pause) for at in range(8)]
    speech = tuple((end - len(sentence) - pause, end - pause) for end in ends)
    request = TranscriptionRequest(_joined([sentence] * 8), "en", speech=speech)
    again: list[object] = []
    monkeypatch.setattr(engine, "_is_decoded_again", lambda *tried: again.append(tried))
    heard = engine.transcribe([request])[0]
    text = " ".join(segment.text for segment in heard.segments).lower()
    assert 7 <= text.count("ferry was late") <= 9
    assert again == [], "more tries of the whole take longer"


def _joined(parts: Sequence[Pcm]) -> Pcm:
    pause = np.zeros(STT_SAMPLE_RATE // 4, np.float32)
    return np.concatenate([sound for part in parts for sound in (part, pause)])
