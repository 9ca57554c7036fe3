"""When each word was said, from the decoder's attention."""

from collections.abc import Sequence

import ctranslate2
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import merge_punctuations

from models.stt.base import Word

PREPENDED = "\"'“¿([{-"
APPENDED = "\"'.。,，!！?？:：”)]}、"
FRAMES_PER_S = 100  # mel frames, which is what the aligner counts


def align_words(
    whisper: WhisperModel,
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    states: ctranslate2.StorageView,
    duration_s: float,
) -> tuple[Word, ...]:
    """The words of one text, in order; `states` is the encoder's output, [1, n, width]."""
    text = [token for token in tokens if token < tokenizer.eot]
    if not text:
        return ()
    frames = max(2, int(duration_s * FRAMES_PER_S))
    alignment = whisper.find_alignment(tokenizer, [text], states, frames)[0]
    merge_punctuations(alignment, PREPENDED, APPENDED)
    words = []
    for timing in alignment:
        word = timing["word"].strip()
        if word:
            start = min(float(timing["start"]), duration_s)
            end = min(max(float(timing["end"]), start), duration_s)
            words.append(
                Word(word, round(start, 2), round(end, 2), round(float(timing["probability"]), 4))
            )
    return tuple(words)
