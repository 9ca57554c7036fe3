"""Chooses the language of speech by the probabilities that Whisper gives to all languages."""

from collections.abc import Mapping, Sequence

from models.stt.base import LEAST_PROBABILITY

# Probability below which detection is repeated with the filled window, which takes five times as
# long. Measured on 88 clips of 1 to 4 s in nine languages: of 17 clips below it, 6 are right at
# first and 9 with the filled window, as many as with 30 s encoded.
DOUBTFUL = 0.5
SURE = 0.9  # probability from which speech is in another language than a recording's given one


def chosen(
    scores: Mapping[str, float], prior: Mapping[str, float], allowed: Sequence[str]
) -> tuple[str, float]:
    """Returns the likeliest allowed language and its probability: its share among the allowed ones,
    weighted by the prior, times the probability that the speech is in any of them."""
    weighted = {
        code: max(scores.get(code, 0.0), LEAST_PROBABILITY) * prior.get(code, 1.0)
        for code in allowed
    }
    language = max(weighted, key=lambda code: weighted[code])
    is_allowed = sum(scores.get(code, 0.0) for code in allowed)
    return language, weighted[language] / sum(weighted.values()) * is_allowed
