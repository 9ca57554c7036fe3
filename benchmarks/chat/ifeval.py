"""IFEval: whether a chat model obeys instructions that a program can verify.

    python -m benchmarks.chat.ifeval instruction_following_eval/data/input_data.jsonl

The prompts of google-research's instruction_following_eval (Apache-2.0), drawn by a hash of their
keys. An instruction is judged strictly by the rules of its `instructions.py`; sentences are split
here by a rule in place of NLTK's model, and languages are detected by this service's detector.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chat.asking import ask_all, drawn, parser, to_request
from pipelines.text.language_detection import detect_language

MAX_TOKENS = 1280  # as lm-evaluation-harness has it
LANGUAGES = frozenset(
    "ar bg bn de en es fa fi fr gu hi it kn ko mr ne pa pt ru sw ta te th ur vi zh".split()
)
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
# A full stop after a single letter or one of these abbreviations ends no sentence.
SENTENCE_END = re.compile(
    r"(?<!\b[A-Za-z])(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bvs)(?<!\bInc)(?<!\betc)"
    r"\.[\"')\]*]*\s+|[!?]+[\"')\]*]*\s+",
    re.IGNORECASE,
)


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("data", type=Path, help="input_data.jsonl")
    options.add_argument("--number", type=int, default=60, help="prompts that are drawn")
    given = options.parse_args()
    lines = [json.loads(line) for line in given.data.read_text().splitlines()]
    cases = drawn(lines, given.number, lambda case: str(case["key"]))
    answers = ask_all(given, {str(case["key"]): to_request(_fields(case)) for case in cases})
    kinds: dict[str, list[bool]] = defaultdict(list)
    prompts = 0
    for case in cases:
        answer = answers[str(case["key"])]
        verdicts = judge(case, answer.text)
        prompts += all(verdicts)
        for kind, verdict in zip(case["instruction_id_list"], verdicts, strict=True):
            kinds[kind].append(verdict)
        if given.show and not all(verdicts):
            print(case["key"], case["prompt"], verdicts, case["kwargs"], answer.text, sep="\n")
    for kind, verdicts in sorted(kinds.items()):
        print(f"{kind:45}{sum(verdicts):4} of {len(verdicts)}")
    obeyed = [verdict for verdicts in kinds.values() for verdict in verdicts]
    print(f"prompts, strict: {prompts} of {len(cases)} ({100 * prompts / len(cases):.1f} %)")
    share = 100 * sum(obeyed) / len(obeyed)
    print(f"instructions, strict: {sum(obeyed)} of {len(obeyed)} ({share:.1f} %)")
    print(f"cut by the limit of {MAX_TOKENS} tokens: {sum(a.was_cut for a in answers.values())}")


def _fields(case: dict[str, Any]) -> dict[str, Any]:
    """The body of a client's request."""
    messages = [{"role": "user", "content": case["prompt"]}]
    return {"messages": messages, "max_tokens": MAX_TOKENS, "seed": 0}


def judge(case: dict[str, Any], text: str) -> list[bool]:
    """Returns whether the answer obeys each instruction of its prompt; an empty one obeys none."""
    pairs = zip(case["instruction_id_list"], case["kwargs"], strict=True)
    return [
        bool(text.strip()) and CHECKS[kind](text, {k: v for k, v in more.items() if v is not None})
        for kind, more in pairs
    ]


def _compare(number: int, relation: str, bound: int) -> bool:
    return number < bound if relation == "less than" else number >= bound


def _count(pattern: str, text: str, flags: int = 0) -> int:
    return len(re.findall(pattern, text, flags))


def _words(text: str, more: dict[str, Any]) -> bool:
    return _compare(_count(r"\w+", text), more["relation"], more["num_words"])


def _sentences(text: str, more: dict[str, Any]) -> bool:
    sentences = [part for part in SENTENCE_END.split(text) if part.strip()]
    return _compare(len(sentences), more["relation"], more["num_sentences"])


def _paragraphs(text: str, more: dict[str, Any]) -> bool:
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return all(parts) and len(parts) == more["num_paragraphs"]


def _first_word(text: str, more: dict[str, Any]) -> bool:
    paragraphs = text.split("\n\n")
    number = sum(bool(paragraph.strip()) for paragraph in paragraphs)
    if number != more["num_paragraphs"] or more["nth_paragraph"] > number:
        return False
    words = paragraphs[more["nth_paragraph"] - 1].split()
    first = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0] if words else ""
    return first.lower() == str(more["first_word"]).lower()


def _bullets(text: str, more: dict[str, Any]) -> bool:
    stars = _count(r"^\s*\*[^*].*$", text, re.MULTILINE)
    dashes = _count(r"^\s*-.*$", text, re.MULTILINE)
    return bool(stars + dashes == more["num_bullets"])


def _highlights(text: str, more: dict[str, Any]) -> bool:
    single = sum(bool(part.strip()) for part in re.findall(r"\*([^\n*]*)\*", text))
    double = sum(bool(part.strip()) for part in re.findall(r"\*\*([^\n*]*)\*\*", text))
    return bool(single + double >= more["num_highlights"])


def _sections(text: str, more: dict[str, Any]) -> bool:
    return bool(_count(rf"{more['section_spliter']}\s?\d+", text) >= more["num_sections"])


def _postscript(text: str, more: dict[str, Any]) -> bool:
    marker = more["postscript_marker"]
    return bool(re.search(POSTSCRIPTS.get(marker, re.escape(marker)), text, re.IGNORECASE))


def _json(text: str, _: dict[str, Any]) -> bool:
    try:
        json.loads(re.sub(r"\A\s*```(?:json)?|```\s*\Z", "", text, flags=re.IGNORECASE))
    except ValueError:
        return False
    return True


def _title(text: str, _: dict[str, Any]) -> bool:
    return any(title.strip("<> ") for title in re.findall(r"<<[^\n]+>>", text))


def _two_answers(text: str, _: dict[str, Any]) -> bool:
    parts = [part.strip() for part in text.split("******")]
    answers = [part for part in parts if part]
    return all(parts[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


def _repeats(text: str, more: dict[str, Any]) -> bool:
    return text.strip().lower().startswith(more["prompt_to_repeat"].strip().lower())


def _ends(text: str, more: dict[str, Any]) -> bool:
    return text.strip().strip('"').lower().endswith(more["end_phrase"].strip().lower())


def _quoted(text: str, _: dict[str, Any]) -> bool:
    return re.fullmatch(r'".*"', text.strip(), re.DOTALL) is not None


def _has_keywords(text: str, more: dict[str, Any]) -> bool:
    return all(re.search(keyword, text, re.IGNORECASE) for keyword in more["keywords"])


def _keyword_count(text: str, more: dict[str, Any]) -> bool:
    number = _count(more["keyword"], text, re.IGNORECASE)
    return _compare(number, more["relation"], more["frequency"])


def _without_words(text: str, more: dict[str, Any]) -> bool:
    words = more["forbidden_words"]
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in words)


def _letter_count(text: str, more: dict[str, Any]) -> bool:
    number = Counter(text.lower())[more["letter"].lower()]
    return _compare(number, more["let_relation"], more["let_frequency"])


def _capital_words(text: str, more: dict[str, Any]) -> bool:
    words = re.findall(r"\w[\w'’.-]*", text)
    number = sum(word.isupper() for word in words)
    return _compare(number, more["capital_relation"], more["capital_frequency"])


def _is_in(language: str, text: str) -> bool:
    return detect_language(text.lower(), LANGUAGES) == language


CHECKS: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda text, _: text.isupper() and _is_in("en", text),
    "change_case:english_lowercase": lambda text, _: text.islower() and _is_in("en", text),
    "combination:repeat_prompt": _repeats,
    "combination:two_responses": _two_answers,
    "detectable_content:number_placeholders": lambda text, more: (
        _count(r"\[.*?\]", text) >= more["num_placeholders"]
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:constrained_response": lambda text, _: any(a in text for a in ANSWERS),
    "detectable_format:json_format": _json,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:title": _title,
    "keywords:existence": _has_keywords,
    "keywords:forbidden_words": _without_words,
    "keywords:frequency": _keyword_count,
    "keywords:letter_frequency": _letter_count,
    "language:response_language": lambda text, more: _is_in(more["language"], text),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_sentences": _sentences,
    "length_constraints:number_words": _words,
    "punctuation:no_comma": lambda text, _: "," not in text,
    "startend:end_checker": _ends,
    "startend:quotation": _quoted,
}


if __name__ == "__main__":
    main()
