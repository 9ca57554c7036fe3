"""GLEU for corrections: n-grams shared with a reference, minus those kept from the source that the
reference changed.

After Napoles et al. 2015 and 2016 (without tuning): precision of one to four words with a penalty
for n-grams of the source that the reference does not have, and the brevity penalty of BLEU.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

_TOKENS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_LONGEST = 4


def gleu(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> float:
    """GLEU of a corpus, 0 to 1; with several references a sentence, the mean over each of them."""
    rounds = max(map(len, references))
    return (
        sum(
            _gleu(sources, outputs, [of[index % len(of)] for of in references])
            for index in range(rounds)
        )
        / rounds
    )


def _gleu(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> float:
    good = [0] * _LONGEST
    all_ = [0] * _LONGEST
    output_length = reference_length = 0
    for source, output, reference in zip(sources, outputs, references, strict=True):
        s, o, r = (_TOKENS.findall(text) for text in (source, output, reference))
        output_length += len(o)
        reference_length += len(r)
        for n in range(_LONGEST):
            of_source, of_output, of_reference = (_ngrams(words, n + 1) for words in (s, o, r))
            kept_wrongly = of_output & (of_source - of_reference)
            good[n] += max((of_output & of_reference).total() - kept_wrongly.total(), 0)
            all_[n] += max(len(o) - n, 0)
    if min(good) == 0:
        return 0.0
    precision = sum(math.log(g / a) for g, a in zip(good, all_, strict=True)) / _LONGEST
    return math.exp(min(0.0, 1 - reference_length / output_length) + precision)


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
