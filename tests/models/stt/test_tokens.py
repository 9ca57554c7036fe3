"""Words from tokens: numbers, marks, characters in parts and languages without spaces."""

import numpy as np
import pytest

from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.stt.tokens import RecognisedToken, transcript_of

HIRAGANA = "あ".encode()


def transcribed(
    *pieces: str | bytes | tuple[str, float], language: str = "en", seconds: float = 4.0
) -> Transcript:
    """The transcript of tokens, some with their beginnings."""
    tokens = []
    for one in pieces:
        piece, start_s = one if isinstance(one, tuple) else (one, None)
        utf8 = piece.encode() if isinstance(piece, str) else piece
        tokens.append(RecognisedToken(utf8, -0.1, start_s))
    pcm = np.ones(round(seconds * STT_SAMPLE_RATE), np.float32)
    request = TranscriptionRequest(pcm, language, options=RecognitionOptions(words=True))
    return transcript_of(tokens, request, ("en", "de", "ja"))


@pytest.mark.parametrize(
    ("pieces", "language", "words"),
    [
        ((" The", " ri", "ver", "."), "en", ["The", "river."]),
        ((" at", " ", "8", ".", "3", "0"), "en", ["at", "8.30"]),
        ((" well", "-", "known", " ,", " said"), "en", ["well-known,", "said"]),
        (("Caf", b"\xc3", b"\xa9", " open"), "en", ["Café", "open"]),
        ((" ", HIRAGANA[:1], HIRAGANA[1:], "い", "。"), "ja", ["あ", "い。"]),
        ((" ...", " yes"), "en", ["...", "yes"]),
        ((b"\xff", " x"), "en", ["\N{REPLACEMENT CHARACTER}", "x"]),
    ],
)
def test_words_begin_at_spaces_and_keep_their_marks(
    pieces: tuple[str, ...], language: str, words: list[str]
) -> None:
    [segment] = transcribed(*pieces, language=language).segments
    assert [word.word for word in segment.words] == words
    assert segment.text == ("" if language == "ja" else " ").join(words)


def test_a_word_ends_when_the_next_begins_or_soon() -> None:
    [segment] = transcribed((" a", 0.5), ("b", 0.6), (".", 1.4), (" c", 0.8), (" d", 3.9)).segments
    assert [(word.start, word.end) for word in segment.words] == [
        (0.5, 0.8),
        (0.8, 1.1),
        (3.9, 4.0),
    ]


def test_a_time_after_the_end_is_the_end() -> None:
    [segment] = transcribed((" a", 9.0), (" b", 9.5)).segments
    assert [(word.start, word.end) for word in segment.words] == [(4.0, 4.0)] * 2


def test_estimated_times_leave_pauses_out() -> None:
    pcm = np.ones(4 * STT_SAMPLE_RATE, np.float32)
    spans = ((0, STT_SAMPLE_RATE), (3 * STT_SAMPLE_RATE, 4 * STT_SAMPLE_RATE))
    tokens = [RecognisedToken(piece, -0.1) for piece in (b" one", b" two", b" six", b" ten")]
    [segment] = transcript_of(tokens, TranscriptionRequest(pcm, speech=spans), ("en",)).segments
    times = [(word.start, word.end) for word in segment.words]
    assert times == [(0, 0.5), (0.5, 1.0), (3.0, 3.5), (3.5, 4.0)]


@pytest.mark.parametrize("pieces", [(), (" ",), ("",)])
def test_no_words_are_no_speech(pieces: tuple[str, ...]) -> None:
    assert transcribed(*pieces).segments == ()
