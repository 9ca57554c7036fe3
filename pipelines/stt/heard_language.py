"""Tracks the session language, and finds the language of a transcript from its text.

The session language is a belief that each utterance changes: a hidden Markov model whose states are
the languages (Rabiner, "A Tutorial on Hidden Markov Models and Selected Applications in Speech
Recognition", 1989). Speakers seldom change the language, and the recogniser's probabilities are
evidence, of little weight where there is little speech."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import replace

from models.stt.base import LEAST_PROBABILITY, Transcript
from pipelines.text.language_detection import detect_language, paragraph_language

BY_TEXT = 0.9  # probability of a language that only the text shows
# Cap of the log odds, so that a change needs no more evidence after an hour than after a sentence.
MOST = 4.5
CERTAIN = 3.0  # log odds over the second language from which a language is certain
USUAL = 2.0  # log odds of the usual language before any speech
# Audio, with the silence around the speech, up to which evidence has no weight, and from which it
# has its full weight.
NO_EVIDENCE_S, FULL_EVIDENCE_S = 0.6, 2.4
LEAST_WEIGHT = 0.1
# Weight from which an utterance can shake a certain language, and probability from which several
# shorter ones can. Whisper repeats its errors, such as Arabic for Hindi: it took half of 336 short
# turns for another language, but only one of them with this probability.
SHAKES = 0.8
SURELY = 0.97


async def with_language(result: Awaitable[Transcript], expected: str | None) -> Transcript:
    """Chooses one of a transcript's candidate languages, if it has any. It is the `expected` one,
    that of the utterance before, unless the text is clearly in another."""
    transcript = await result
    if not transcript.candidates:
        return transcript
    text = " ".join(segment.text for segment in transcript.segments)
    offered = set(transcript.candidates)
    if expected in offered:
        language = await asyncio.to_thread(paragraph_language, text, offered, expected)
    else:
        language = await asyncio.to_thread(detect_language, text, offered)
    return replace(transcript, language=language, candidates=(), scores={language: BY_TEXT})


class SessionLanguage:
    """Belief in each language of a session, as log odds relative to any other language."""

    def __init__(self, usual: str | None = None) -> None:
        """`usual`, of the request or the workspace, decides until another language is certain."""
        self._odds: dict[str, float] = {} if usual is None else {usual: USUAL}

    @property
    def certain(self) -> str | None:
        """Language of the session, once it is certain."""
        best, *others = sorted(self._odds.items(), key=lambda item: -item[1]) or [("", 0.0)]
        second = others[0][1] if others else 0.0
        return best[0] if best[1] - second >= CERTAIN else None

    def prior(self, seconds: float) -> dict[str, float]:
        """Prior odds of each language for an utterance of so many seconds."""
        weight = _weight(seconds)
        return {language: math.exp(odds / weight) for language, odds in self._odds.items()}

    def note(self, transcript: Transcript, seconds: float) -> None:
        """Takes the evidence of a final transcript; without effect where the language was given."""
        if not transcript.scores:
            return
        weight = _weight(seconds)
        if weight < SHAKES and self.certain is not None:
            # A language that the text shows is the only one in `scores`.
            if len(transcript.scores) > 1 and max(transcript.scores.values()) < SURELY:
                return
            weight = LEAST_WEIGHT
        odds = {
            language: self._odds.get(language, 0.0)
            + weight * math.log(max(transcript.scores.get(language, 0.0), LEAST_PROBABILITY))
            for language in {*self._odds, *transcript.scores}
        }
        least = max(max(odds.values()) - MOST, weight * math.log(LEAST_PROBABILITY))
        self._odds = {language: odd - least for language, odd in odds.items() if odd > least}


def _weight(seconds: float) -> float:
    share = (seconds - NO_EVIDENCE_S) / (FULL_EVIDENCE_S - NO_EVIDENCE_S)
    return min(1.0, max(LEAST_WEIGHT, share))
