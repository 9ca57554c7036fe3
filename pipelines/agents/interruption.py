"""Whether speech of the user during the agent's speech is an interruption.

A cough has no words; "mhm" is a back-channel, by which listeners only show that they listen (Yngve
1970); an echo repeats what the agent has just said. Anything else interrupts.
"""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

# In the languages of the voices, as recognisers write them; compared without case and marks.
BACK_CHANNELS = frozenset(
    "mhm mm mmm mmhmm hm hmm hmmm uh huh uhhuh uh-huh um umm ah aha oh ooh yeah yep yes yup ok "
    "okay right sure i see got it alright cool nice wow really exactly true mm-hmm "
    "ja genau ach so klar stimmt okay hm verstehe "
    "oui ouais d'accord ah bon voilà "
    "sí claro vale ajá ya "
    "sì certo va bene già "
    "sim tá certo pois "
    "tak no jasne aha "
    "はい うん ええ そう へえ なるほど 嗯 对 是 好 हाँ अच्छा".split()
)
MOST_BACK_CHANNEL_WORDS = 3
ECHO_SHARE = 0.75  # of the words heard that the agent has just said, in order
_WORD = re.compile(r"[\w'’-]+")


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return [word.strip("'’-") for word in _WORD.findall(text.lower())]


def is_back_channel(text: str) -> bool:
    """Whether a short text only shows that its speaker listens; no words do not count as one."""
    words = words_of(text)
    return 0 < len(words) <= MOST_BACK_CHANNEL_WORDS and BACK_CHANNELS.issuperset(words)


def is_echo(text: str, spoken: str) -> bool:
    """Whether a microphone heard the agent itself: the words are those of `spoken`, its last
    seconds, in order."""
    heard, said = words_of(text), words_of(spoken)
    if not heard or not said:
        return False
    matches = SequenceMatcher(None, said, heard, autojunk=False).get_matching_blocks()
    return sum(match.size for match in matches) >= ECHO_SHARE * len(heard)


def interrupts(text: str, spoken: str) -> bool:
    """Whether the text of the user's speech ends the agent's."""
    return bool(words_of(text)) and not is_back_channel(text) and not is_echo(text, spoken)


def text_between(words: Iterable[tuple[str, float, float]], start_s: float, end_s: float) -> str:
    """The words that sounded between two times; each with its start and end."""
    return " ".join(word for word, begins, ends in words if ends > start_s and begins < end_s)
