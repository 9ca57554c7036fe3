"""The language of what is heard: the session language, one belief which each utterance changes,
and the language of a transcript whose engine does not say it, from its text.

The belief is a hidden Markov model whose states are the languages (Rabiner, "A Tutorial on Hidden
Markov Models and Selected Applications in Speech Recognition", 1989): speakers seldom change the
language, and the recogniser's probabilities are evidence, of little weight where there is little
speech.
"""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import replace

from models.stt.base import LEAST_PROBABILITY, Transcript
from pipelines.text.language_detection import detect_language, paragraph_language

BY_TEXT = 0.9  # the probability of a language that only the text shows
# Log odds that one language has of another at most, so that a change needs no more evidence than
# this, after an hour as after a sentence.
MOST = 4.5
CERTAIN = 3.0  # log odds over the second from which a language is certain
USUAL = 2.0  # log odds of the usual language before anything is heard
# Seconds of audio, with the silence around the speech, that have no weight, and full weight.
NO_EVIDENCE_S, FULL_EVIDENCE_S = 0.6, 2.4
LEAST_WEIGHT = 0.1


async def with_language(heard: Awaitable[Transcript], expected: str | None) -> Transcript:
    """The transcript in one of its candidates, if it has some: in the `expected` one, that of the
    utterance before, unless the text is clearly in another."""
    transcript = await heard
    if not transcript.candidates:
        return transcript
    text, offered = " ".join(one.text for one in transcript.segments), set(transcript.candidates)
    if expected in offered:
        language = await asyncio.to_thread(paragraph_language, text, offered, expected)
    else:
        language = await asyncio.to_thread(detect_language, text, offered)
    return replace(transcript, language=language, candidates=(), scores={language: BY_TEXT})


class SessionLanguage:
    """The belief in each language, as log odds over those that are not named."""

    def __init__(self, usual: str | None = None) -> None:
        """`usual` decides while nothing is certain: that of the request or the workspace."""
        self._odds: dict[str, float] = {} if usual is None else {usual: USUAL}

    @property
    def certain(self) -> str | None:
        """The language, once it is certain."""
        best, *others = sorted(self._odds.items(), key=lambda item: -item[1]) or [("", 0.0)]
        second = others[0][1] if others else 0.0
        return best[0] if best[1] - second >= CERTAIN else None

    def prior(self, seconds: float) -> dict[str, float]:
        """How many times likelier each language is for an utterance of so many seconds."""
        weight = _weight(seconds)
        return {language: math.exp(odds / weight) for language, odds in self._odds.items()}

    def note(self, transcript: Transcript, seconds: float) -> None:
        """Takes the evidence of a final transcript; without effect where the language was given."""
        if not transcript.scores:
            return
        weight = _weight(seconds)
        odds = {
            language: self._odds.get(language, 0.0)
            + weight * math.log(max(transcript.scores.get(language, 0.0), LEAST_PROBABILITY))
            for language in {*self._odds, *transcript.scores}
        }
        least = max(max(odds.values()) - MOST, weight * math.log(LEAST_PROBABILITY))
        self._odds = {language: one - least for language, one in odds.items() if one > least}


def _weight(seconds: float) -> float:
    share = (seconds - NO_EVIDENCE_S) / (FULL_EVIDENCE_S - NO_EVIDENCE_S)
    return min(1.0, max(LEAST_WEIGHT, share))
