"""Everyday questions to a chat model: right answers, answers that repeat themselves, and lengths.

    python -m benchmarks.chat.everyday                      # with the model's own configuration
    python -m benchmarks.chat.everyday --temperature 0.7 --top-p 0.8
    git clone https://github.com/google-research-datasets/LLAMA1-Test-Set
    python -m benchmarks.chat.everyday --public LLAMA1-Test-Set/llama_questions_300.tsv

Half of the questions of `questions.yaml` may be used for choices (`tuned`); the rest is held out.
With `--public`, 60 questions that have a key are drawn by a hash of their words: 30 that are held
out, and 30 of LLaMA Questions, which were written to be spoken to an assistant. The README's
example is then asked 20 times more.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.chat.asking import Answer, ask_all, drawn, parser, to_request

QUESTIONS = Path(__file__).with_name("questions.yaml")
MAX_TOKENS = 400
TIMES, WORDS = 3, 8  # a run of WORDS words that comes TIMES times is a repetition
DRAWN, README_TIMES = 30, 20
README = "What is the capital of France?"

# Rows of LLaMA Questions that are not drawn. Their key was judged before any model was asked: it is
# wrong or out of date ("How many arms does a spider have?" Eight), one opinion of several ("Which
# city is known for its craft beer scene?"), or the question repeats another one.
# fmt: off
WITHOUT_KEY = {
    5, 15, 24, 38, 39, 49, 57, 59, 64, 65, 66, 76, 79, 81, 86, 89, 91, 92, 94, 103, 118, 129, 130,
    131, 141, 147, 155, 156, 161, 165, 166, 167, 168, 169, 170, 183, 217, 218, 219, 220, 221, 223,
    224, 226, 228, 229, 235, 241, 250, 254, 269, 273, 275, 278, 279, 286, 291,
}
# fmt: on
NUMBERS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
        " fifteen sixteen seventeen eighteen nineteen".split()
    )
} | {
    word: 10 * value
    for value, word in enumerate(
        "twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2
    )
}
FILLERS = {"a", "an", "and", "of", "the"}


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    pattern: str = ""  # a regular expression that a right answer matches
    key: str = ""  # words that a right answer has, where there is no pattern

    @property
    def has_key(self) -> bool:
        return bool(self.pattern or self.key)

    def is_answered_by(self, text: str) -> bool:
        if self.key:
            return has_key(text, self.key)
        flags = re.DOTALL | (0 if self.pattern.isupper() else re.IGNORECASE)
        return re.search(self.pattern, text, flags) is not None


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--temperature", type=float)
    options.add_argument("--top-p", type=float)
    options.add_argument("--public", type=Path, help="llama_questions_300.tsv")
    given = options.parse_args()
    own = [Question(row["ask"], row.get("answer", "")) for row in yaml.safe_load(_text(QUESTIONS))]
    halves = {"tuned": own[0::2], "held out": own[1::2]}
    if given.public:
        keyed = [question for question in halves["held out"] if question.has_key]
        public = _public(given.public)
        halves = {
            "held out": drawn(keyed, DRAWN, lambda question: question.text),
            "public": drawn(public, DRAWN, lambda question: question.text),
        }
    sampling = {"temperature": given.temperature, "top_p": given.top_p}
    requests = {
        question.text: _fields(question.text, 0, sampling)
        for half in halves.values()
        for question in half
    }
    repeated = [f"{README} {seed}" for seed in range(README_TIMES if given.public else 0)]
    for seed, name in enumerate(repeated):
        requests[name] = _fields(README, seed, sampling)
    answers = ask_all(given, {name: to_request(fields) for name, fields in requests.items()})
    for name, half in halves.items():
        _report(name, half, [answers[question.text] for question in half], given.show)
    if repeated:
        right = sum("Paris" in answers[name].text for name in repeated)
        print(f"the README's example right {right} of {README_TIMES}")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _public(file: Path) -> list[Question]:
    rows = [line.split("\t") for line in _text(file).splitlines()[1:]]
    return [
        Question(text.strip(), key=key.strip())
        for number, (text, key, *_) in enumerate(rows, 1)
        if number not in WITHOUT_KEY
    ]


def _fields(text: str, seed: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a client's request."""
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": MAX_TOKENS, "seed": seed, **sampling}


def _report(name: str, half: Sequence[Question], answers: Sequence[Answer], shows: bool) -> None:
    pairs = list(zip(half, answers, strict=True))
    verdicts = [q.is_answered_by(answer.text) if q.has_key else None for q, answer in pairs]
    print(
        f"{name:9} right {verdicts.count(True)} of {len(half) - verdicts.count(None)},"
        f" repeat themselves {sum(repeats(answer.text) for answer in answers)},"
        f" cut {sum(answer.was_cut for answer in answers)},"
        f" tokens {sum(answer.tokens for answer in answers) / len(half):.0f}"
    )
    if shows:
        for (question, answer), verdict in zip(pairs, verdicts, strict=True):
            key = question.key or question.pattern
            print(f"\n{question.text} [{key}] {verdict}\n{answer.text}")


def repeats(text: str) -> bool:
    """Whether the same words come again and again."""
    words = re.findall(r"\w+", text.lower())
    runs = Counter(tuple(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1))
    return any(count >= TIMES for count in runs.values())


def has_key(text: str, key: str) -> bool:
    """Whether a text has all words of a key, or one of its alternatives; a number in digits too.

    A symbol such as "Na" is looked for as it is written, other words without case, accents and the
    plural's letter.
    """
    if len(key) <= 2:
        return re.search(rf"\b{key}\b", text) is not None
    words = set(_words(text))
    digits = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    if (number := _number(_words(key))) and re.search(rf"\b{number}\b", digits):
        return True
    alternatives = (set(_words(part)) - FILLERS for part in key.split(","))
    return any(alternative <= words for alternative in alternatives)


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return [
        word.removesuffix("s") if len(word) > 3 else word for word in re.findall(r"\w+", letters)
    ]


def _number(words: Sequence[str]) -> int | None:
    """The number that the words name, up to 999."""
    total = 0
    for word in words:
        if word == "hundred":
            total *= 100
        elif word in NUMBERS:
            total += NUMBERS[word]
        else:
            return None
    return total


if __name__ == "__main__":
    main()
