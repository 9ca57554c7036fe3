"""Decides whether speech of the user during the agent's speech is an interruption (barge-in).

A cough has no words; "mhm" is a back-channel, by which listeners only show that they listen (Yngve
1970); an echo repeats what the agent has just said. All other speech interrupts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

from configs.schema.languages import LANGUAGES

# Back-channels of all languages together, in lower case and without punctuation.
BACK_CHANNELS = frozenset().union(*(words.back_channels for words in LANGUAGES.values()))
EXPECTED = {code: words.expected for code, words in LANGUAGES.items() if words.expected}
MAX_BACK_CHANNEL_WORDS = 3
ECHO_SHARE = 0.75  # least share of an echo's words that the agent has just said, in this order
SHORT_S = 0.75  # most back-channels are shorter
UNDERSTOOD = 0.55  # least confidence at which words count as heard correctly
_WORD = re.compile(r"[\w'’-]+")
_HUM = re.compile(r"(?:[aeouäöü]?[hm]+[aeouäöü]?-?)+")  # "uhum", "ähm"


@dataclass(frozen=True, slots=True)
class Heard:
    """The recogniser's hypothesis for the user's speech so far."""

    text: str
    confidence: float = 1.0  # 0 to 1
    speech_s: float = 1.0
    is_over: bool = True  # the speech has probably ended


def words_of(text: str) -> list[str]:
    """Splits a text into lower-case words without punctuation."""
    return [word.strip("'’-") for word in _WORD.findall(text.lower())]


def is_back_channel(text: str) -> bool:
    """Whether a short text only shows that its speaker listens; False for a text without words."""
    words = words_of(text)
    return 0 < len(words) <= MAX_BACK_CHANNEL_WORDS and all(
        word in BACK_CHANNELS or _HUM.fullmatch(word) for word in words
    )


def is_echo(text: str, spoken: str) -> bool:
    """Whether the text repeats what the agent has `spoken` in the last seconds, as an echo does."""
    words = words_of(text)
    spoken_words = words_of(spoken)
    if not words or not spoken_words:
        return False
    matches = SequenceMatcher(None, spoken_words, words, autojunk=False).get_matching_blocks()
    return sum(match.size for match in matches) >= ECHO_SHARE * len(words)


def interrupts(speech: Heard, spoken: str) -> bool:
    """Whether the user's speech interrupts the agent, which has just said `spoken`. Short speech
    that still goes on never does; with little confidence, only long speech that is over does."""
    text = speech.text
    if not words_of(text) or is_back_channel(text) or is_echo(text, spoken):
        return False
    is_long = speech.speech_s >= SHORT_S
    if speech.is_over and is_long:
        return True
    return speech.confidence >= UNDERSTOOD and (speech.is_over or is_long)


def text_between(words: Iterable[tuple[str, float, float]], start_s: float, end_s: float) -> str:
    """Joins the words that sound between two times; each word has its start and end in seconds."""
    return " ".join(word for word, begins, ends in words if ends > start_s and begins < end_s)
