"""Prompts of any kind: how much decoding they cost Whisper, and that they are not its text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from models.audio import Pcm
from models.stt.base import INTERIM, STT_SAMPLE_RATE, DecodingBudget, TranscriptionRequest, Word
from models.stt.options import RecognitionOptions
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.hallucination import Decoding
from models.stt.whisper.job import CALL_TOKENS, DecodingJob
from models.stt.whisper.prompts import is_unsaid, reduced
from models.weights.store import WeightStore
from tests.models.sounds import speak

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps under a tree."
PROMPTS = {
    "two names": "Contoso, Fabrikam. " * 35,
    "a sentence": "Hello, welcome to the Contoso meeting with Anna and Bob. " * 12,
    "a word": "Okay. " * 60,
    "a letter": "a" * 600,
    "a counter": "Item one is done. Item two is done. Item three is done. Item four is done. " * 7,
    "marks of the model": "<|endoftext|><|startoftranscript|><|de|><|translate|>" * 8,
    "another script": "ご視聴ありがとうございました。" * 40,
    "the speech": TEXT,
}


@dataclass
class Tries:
    """The calls of the decoder, and what they cost."""

    prompted: list[bool] = field(default_factory=list)
    tokens: int = 0


@pytest.fixture
def tries(engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tries]:
    counted, generate = Tries(), engine._generate

    def count(
        jobs: Sequence[DecodingJob], limits: Sequence[int], temperature: float | None
    ) -> list[Decoding]:
        decodings = generate(jobs, limits, temperature)
        counted.prompted += [bool(job.prompt) for job in jobs]
        counted.tokens += sum(len(decoding.tokens) for decoding in decodings)
        return decodings

    monkeypatch.setattr(engine, "_generate", count)
    yield counted


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> Pcm:
    return speak(TEXT, weights)


def text_of(engine: WhisperEngine, request: TranscriptionRequest) -> str:
    (transcript,) = engine.transcribe([request])
    return " ".join(segment.text for segment in transcript.segments)


def asked(pcm: Pcm, prompt: str = "") -> TranscriptionRequest:
    half = len(pcm) // 2
    return TranscriptionRequest(
        pcm,
        "en",
        options=RecognitionOptions(prompt=prompt),
        speech=((0, half - 1600), (half + 1600, len(pcm))),
    )


def usual_tokens(request: TranscriptionRequest) -> int:
    return DecodingJob(request).usual_tokens


def decoding_of(text: str, *, complete: bool = True) -> Decoding:
    return Decoding(tuple(range(1, 20)), text, -0.2, 0.0, 1.2, complete)


@pytest.mark.weights
@pytest.mark.parametrize("kind", PROMPTS)
def test_no_prompt_costs_more_than_one_usual_text(
    engine: WhisperEngine, speech: Pcm, tries: Tries, kind: str
) -> None:
    plain = text_of(engine, asked(speech))
    cost, tries.tokens = tries.tokens, 0
    tries.prompted.clear()
    prompted = text_of(engine, asked(speech, PROMPTS[kind]))
    assert sum(tries.prompted) == 1
    assert tries.tokens <= 1.2 * cost + usual_tokens(asked(speech))
    words = [word.strip(".,!").lower() for word in prompted.split()]
    assert words == [word.strip(".,!").lower() for word in plain.split()]


@pytest.mark.weights
@pytest.mark.parametrize(
    "failed",
    [
        decoding_of("Fabrikam, " * 9, complete=False),
        replace(decoding_of("Sie erkennen sich"), avg_logprob=-1.4),
        decoding_of(""),
    ],
)
def test_a_text_that_fails_is_decoded_once_more_without_its_prompt(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch, failed: Decoding
) -> None:
    prompts: list[str] = []
    decode = engine._decode

    def fail(jobs: Sequence[DecodingJob], temperature: float | None = None) -> list[Decoding]:
        prompts.extend(job.prompt for job in jobs)
        return [failed] if jobs[0].prompt else decode(jobs, temperature)

    monkeypatch.setattr(engine, "_decode", fail)
    assert "brown fox" in text_of(engine, asked(speech, "Fabrikam, Contoso"))
    assert prompts == ["Fabrikam, Contoso", ""]
    prompts.clear()
    interim = replace(asked(speech, "Fabrikam, Contoso"), urgency=INTERIM, speech=())
    assert text_of(engine, interim) == ""
    assert prompts == ["Fabrikam, Contoso"], "a second text would come too late"


@pytest.mark.weights
def test_words_of_the_prompt_that_were_not_said_are_no_text(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, prompt = engine._decode, "Welcome to the Contoso meeting."

    def leak(jobs: Sequence[DecodingJob], temperature: float | None = None) -> list[Decoding]:
        (decoding,) = decode(jobs, temperature)
        if not jobs[0].prompt:
            return [decoding]
        said = engine._tokenizer(jobs[0]).encode(f" {prompt}")
        tokens = (*said, *decoding.tokens)
        return [replace(decoding, tokens=tokens, text=f"{prompt} {decoding.text}")]

    plain = text_of(engine, asked(speech))
    monkeypatch.setattr(engine, "_decode", leak)
    assert text_of(engine, asked(speech, prompt)) == plain


@pytest.mark.weights
@pytest.mark.parametrize("is_cut", [False, True])
def test_tries_of_a_request_that_always_fails_are_bounded(
    engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """Also of speech with many pauses, each of which could begin a part."""
    seconds, calls = 28, list[int]()
    rng = np.random.default_rng(0)
    pcm = (0.1 * rng.standard_normal(seconds * STT_SAMPLE_RATE)).astype(np.float32)
    speech = tuple(
        (at * STT_SAMPLE_RATE + 1600, (at + 1) * STT_SAMPLE_RATE - 1600) for at in range(seconds)
    )
    request = TranscriptionRequest(pcm, "en", speech=speech)

    def fail(
        jobs: Sequence[DecodingJob], limits: Sequence[int], temperature: float | None
    ) -> list[Decoding]:
        for job, asked_for in zip(jobs, limits, strict=True):
            limit = min(asked_for, job.left)
            calls.append(limit)
            job.request.budget.tokens -= CALL_TOKENS + limit
        text = "on and on " * 20 if is_cut else ""
        return [Decoding((1,), text, -0.2, 0.0, 9.0, not is_cut) for _ in jobs]

    monkeypatch.setattr(engine, "_generate", fail)
    assert text_of(engine, request) == ""
    assert sum(calls) <= 2 * usual_tokens(request)
    assert len(calls) <= 12


@pytest.mark.weights
def test_a_request_whose_caller_left_is_not_decoded_again(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float | None] = []

    def fail(
        jobs: Sequence[DecodingJob], limits: Sequence[int], temperature: float | None
    ) -> list[Decoding]:
        calls.append(temperature)
        return [decoding_of("on and on " * 20, complete=False) for _ in jobs]

    monkeypatch.setattr(engine, "_generate", fail)
    for prompt in ("", "on and on"):
        calls.clear()
        request = replace(asked(speech, prompt), budget=DecodingBudget(is_wanted=lambda: not calls))
        assert text_of(engine, request) == "" or not prompt
        assert calls == [None]
        assert text_of(engine, request) == ""
        assert calls == [None], "not even once"


@pytest.mark.weights
def test_names_of_a_prompt_are_written_as_in_it(
    engine: WhisperEngine, weights: WeightStore
) -> None:
    pcm = speak("Please ask Kaczmarek and Okonkwo to call me back before noon.", weights)
    names = "Kaczmarek, Okonkwo, Tchaikovsky, Anneliese Huber"
    assert "Kaczmarek" not in text_of(engine, asked(pcm))
    heard = text_of(engine, asked(pcm, names))
    assert "Kaczmarek" in heard and "Okonkwo" in heard
    assert "Huber" not in heard and "Tchaikovsky" not in heard


END = 100


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 2] * 50, [1, 2]),
        ([7] * 90, [7]),
        ([1, 2, 3, 4, 5] * 9, [1, 2, 3, 4, 5, 1, 2, 3]),
        ([1, END, 2, END + 5], [1, 2]),
        ([], []),
        ([*range(99)] * 2, [*range(99), *range(3)]),
    ],
)
def test_repetitions_and_marks_of_a_prompt_are_not_read(tokens: list[int], kept: list[int]) -> None:
    assert reduced(tokens, END) == kept


def test_likely_words_of_the_prompt_count_as_spoken() -> None:
    def word(text: str, confidence: float) -> Word:
        return Word(text, 0.0, 0.5, confidence)

    names = "Kaczmarek, Okonkwo"
    plain = [word("ask", 0.9), word("me", 0.9)]
    assert not is_unsaid([*plain, word("Kaczmarek.", 0.25)], names)
    assert is_unsaid([*plain, word("Kaczmarek.", 0.01)], names)
    said = [word(text, 0.8) for text in ("Kaczmarek", "Okonkwo")]
    assert not is_unsaid([*said, word("Kaczmarek.", 0.01)], names)
    assert not is_unsaid([*plain, word("Fabrikam", 0.01)], names)
    assert is_unsaid([word("www.examnet.com", 0.0)], "www.example.com")
    assert is_unsaid([], names)
