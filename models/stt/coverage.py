"""Finds missed speech: speech that no word of a transcript covers.

A decoder without time tokens skips sentences, most often repeated ones, and stops before the last.
Word times from its cross-attention show it: a word beside a skipped sentence stretches over it.
Such a request is decoded with time tokens, then split in two at a pause.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest, Word

MISSED_S = 0.8  # speech without a word
WHOLE_S = 0.5  # speech without a word between two pauses, where no neighbour can extend into it
NEAR_S = 0.3  # greatest distance of a pause from the missed speech that it belongs to
SHORTEST_S = 0.5  # shortest part of a split request
# Longest duration of a word, with the pause before it: a base, and more per character or digit.
WORD_S, CHARACTER_S, DIGIT_S = 0.6, 0.1, 0.5

Span = tuple[float, float]  # seconds


def cut_at(request: TranscriptionRequest, words: Sequence[Word]) -> int | None:
    """Chooses where to split a request (sample): at the pause nearest to the middle of its longest
    missed speech, or where that begins or ends. None without missed speech."""
    spans = [(start / STT_SAMPLE_RATE, end / STT_SAMPLE_RATE) for start, end in request.speech]
    gaps = [gap for gap in _uncovered(words, request.seconds) if _is_missed(gap, spans)]
    missed = max(gaps, key=lambda gap: _speech_s(gap, spans), default=None)
    if missed is None:
        return None
    pauses = [(before[1] + after[0]) / 2 for before, after in zip(spans, spans[1:], strict=False)]
    near = [at for at in pauses if missed[0] - NEAR_S < at < missed[1] + NEAR_S] or missed
    near = [at for at in near if SHORTEST_S < at < request.seconds - SHORTEST_S]
    at = min(near, key=lambda at: abs(at - sum(missed) / 2), default=None)
    return None if at is None else round(at * STT_SAMPLE_RATE)


def cut(request: TranscriptionRequest, at: int, language: str) -> list[TranscriptionRequest]:
    """Splits a request at a sample in a pause. One transcript has one language: `language`."""
    before = [(start, min(end, at)) for start, end in request.speech if start < at]
    after = [(max(start - at, 0), end - at) for start, end in request.speech if end > at]
    return [
        replace(
            request,
            pcm=pcm,
            speech=tuple(spans),
            language=language,
            languages=(language,),
            voice_windows=(),
        )
        for pcm, spans in ((request.pcm[:at], before), (request.pcm[at:], after))
    ]


def join(whole: Transcript, parts: Sequence[Transcript], at: int) -> Transcript:
    """Joins the transcripts of the parts of a request that was split at a sample."""
    first, second = (part.segments for part in parts)
    shifted = (segment.shifted(at / STT_SAMPLE_RATE) for segment in second)
    return replace(whole, segments=(*first, *shifted))


def words_of(transcripts: Iterable[Transcript]) -> list[Word]:
    return [word for part in transcripts for segment in part.segments for word in segment.words]


def _uncovered(words: Sequence[Word], duration_s: float) -> list[Span]:
    """Gaps between words, including the implausible part of words that are too long."""
    gaps = []
    end = 0.0
    for word in words:
        digits = sum(map(str.isdigit, word.word))
        longest = WORD_S + CHARACTER_S * len(word.word) + DIGIT_S * digits
        if word.end - word.start > longest:
            gaps.append((end, word.end - longest / 2))
        else:
            gaps.append((end, word.start))
        end = word.end
    return [*gaps, (end, duration_s)]


def _is_missed(gap: Span, spans: Sequence[Span]) -> bool:
    inside = (end - start for start, end in spans if gap[0] <= start and end <= gap[1])
    return _speech_s(gap, spans) >= MISSED_S or max(inside, default=0.0) >= WHOLE_S


def _speech_s(gap: Span, spans: Sequence[Span]) -> float:
    return sum(max(0.0, min(gap[1], end) - max(gap[0], start)) for start, end in spans)
