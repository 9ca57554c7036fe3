"""Guards against hallucinations of Whisper: texts that it makes up from noise or silence.
Compression ratio, log probability and no-speech probability are the measures of Whisper's own
decoding loop (Radford et al., 2022, section 4.5); the thresholds were measured here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.stt.options import RecognitionOptions

# Measured: real speech has a no-speech probability below 0.5 and a log probability of its text
# above -1.2; hallucinations from noise exceed one or the other. Of 154 texts of read speech, clean,
# at -40 dB and in noise down to -3 dB, one lay below -0.9 with a no-speech probability above 0.3,
# and it was wrong; all texts of hummed babble lay there.
DOUBTFUL_LOGPROB = -0.4  # a lower one is a hallucination if the no-speech probability is high
UNLIKELY_LOGPROB = -0.9  # a lower one is a hallucination at half that no-speech probability
# A shorter text below it is a hallucination at this share of that no-speech probability. Of 300
# spoken digits none is there, but "you", written for the beginning of a hum, is.
FAINT_LOGPROB, FAINT_SILENCE = -1.0, 0.8
LONG = 10  # tokens; the mean of fewer says little, such as of one repeated word
IMPROBABLE_LOGPROB = -1.3  # a lower one is always a hallucination


@dataclass(frozen=True, slots=True)
class Decoding:
    """The result of one decoding of a request."""

    tokens: tuple[int, ...]
    text: str
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    complete: bool  # ended by itself, not by the token limit
    write: Callable[[str], str] = str  # converts parts of the text to the language's scripts


def without_repetitions(tokens: Sequence[int]) -> list[int]:
    """Shortens repetitions, so that no run of tokens follows itself more than once."""
    kept: list[int] = []
    end = size = 0  # end and length of the last run that was repeated
    for token in tokens:
        kept.append(token)
        for length in range(1, len(kept) // 3 + 1):
            run = kept[-length:]
            if kept[-2 * length : -length] == run == kept[-3 * length : -2 * length]:
                del kept[-length:]
                end, size = len(kept), length
                break
    partial = len(kept) - end  # tokens that may begin another repetition
    if size and kept[end:] == kept[end - size : end - size + partial]:
        del kept[end:]
    return kept


@dataclass(frozen=True, slots=True)
class HallucinationGuards:
    """Judges a decoding by its probabilities and compression ratio."""

    compression_ratio_threshold: float
    retry_logprob: float = -1.0

    def is_runaway(self, decoding: Decoding) -> bool:
        """Whether the decoder repeated itself or did not end."""
        return self.repeats(decoding) or not decoding.complete

    def is_suspect(self, decoding: Decoding) -> bool:
        """Whether the speech should be decoded again."""
        return self.is_runaway(decoding) or decoding.avg_logprob < self.retry_logprob

    def is_hallucination(self, decoding: Decoding, options: RecognitionOptions) -> bool:
        """Whether the text should be dropped."""
        logprob = decoding.avg_logprob
        silence = decoding.no_speech_prob
        threshold = options.no_speech_threshold
        is_long = len(decoding.tokens) >= LONG
        return (
            self.repeats(decoding)
            or logprob < IMPROBABLE_LOGPROB
            or (logprob < DOUBTFUL_LOGPROB and silence > threshold)
            or (logprob < UNLIKELY_LOGPROB and silence > threshold / 2 and is_long)
            or (logprob < FAINT_LOGPROB and silence > threshold * FAINT_SILENCE)
        )

    def repeats(self, decoding: Decoding) -> bool:
        """Whether a part of the text is a repetition, not a list of similar sentences."""
        is_repetitive = decoding.compression_ratio > self.compression_ratio_threshold
        return is_repetitive and not _is_list(decoding)


def _is_list(decoding: Decoding) -> bool:
    """Whether a probable text ended by itself and has no loop: "Item one is here. Item two …"."""
    if not decoding.complete or decoding.avg_logprob < DOUBTFUL_LOGPROB:
        return False
    parts = decoding.tokens or tuple(map(ord, decoding.text))  # upstream services send no tokens
    return len(without_repetitions(parts)) == len(parts)
