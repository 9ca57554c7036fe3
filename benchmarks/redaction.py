"""Precision and recall of the redaction of personal data, and what it costs.

    python -m benchmarks.redaction            the table of docs/api.md
    python -m benchmarks.redaction --errors   and the errors in the tuned half

The sentences of `redaction.yaml` are our own; the held-out half was written before the patterns.
An entity is found when all its letters and digits are masked, whatever the mask is named (a title
before a name may stay); a mask is right when it overlaps an entity of its kind. `number`, which is
any four digits, is a rule and not measured.
"""

import re
import time
from collections import Counter
from pathlib import Path
from typing import get_args

import yaml

from benchmarks.harness.report import begin, parser
from configs.schema.personal_data import Kind, Redaction
from pipelines.text.redaction import Entity, find_entities

LABEL = re.compile(r"\{(\w+) ([^}]*)\}")
TITLE = re.compile(r"^(?:(?:Mr|Mrs|Ms|Dr|Prof|Professor)\b\.? ?)+")
MEASURED = frozenset(get_args(Kind)) - {"number"}


def labelled(sentence: str) -> tuple[str, list[Entity]]:
    """The text without its marks, and its entities."""
    text = ""
    entities = []
    end = 0
    for mark in LABEL.finditer(sentence):
        text += sentence[end : mark.start()]
        entities.append(Entity(mark[1], len(text), len(text) + len(mark[2])))  # type: ignore[arg-type]
        text += mark[2]
        end = mark.end()
    return text + sentence[end:], entities


def measure(sentences: list[str], show: bool = False) -> dict[str, Counter[str]]:
    """Counts of each kind: `all` and `found` of the labels, `made` and `right` of the masks."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in sorted(MEASURED)}
    for sentence in sentences:
        text, labels = labelled(sentence)
        masks = find_entities(text, Redaction(MEASURED))
        hidden = {place for mask in masks for place in range(mask.start, mask.end)}
        for label in labels:
            words = text[label.start : label.end]
            title = TITLE.match(words)
            places = range(label.start + (len(title[0]) if title else 0), label.end)
            is_found = all(place in hidden for place in places if text[place].isalnum())
            counts[label.kind].update(all=1, found=is_found)
            if show and not is_found:
                print(f"  missed {label.kind}: {text!r}: {words!r}")
        for mask in masks:
            is_right = any(
                label.kind == mask.kind and label.start < mask.end and mask.start < label.end
                for label in labels
            )
            counts[mask.kind].update(made=1, right=is_right)
            if show and not is_right:
                print(f"  wrong {mask.kind}: {text!r}: {text[mask.start : mask.end]!r}")
    return counts


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--errors", action="store_true")
    show = begin(options).errors
    halves = yaml.safe_load(Path(__file__).with_name("redaction.yaml").read_text("utf-8"))
    for half, styles in halves.items():
        for style, sentences in styles.items():
            counts = measure(sentences, show and half == "tuned")
            print(f"{half}, {style}, {len(sentences)} sentences")
            counts["all"] = sum(counts.values(), Counter())
            for kind, count in counts.items():
                precision = _share(count["right"], count["made"])
                print(f"| {kind} | {precision} | {_share(count['found'], count['all'])} |")
    text = " ".join(labelled(sentence)[0] for sentence in halves["tuned"]["transcript"]) * 4
    began = time.process_time()
    find_entities(text, Redaction(frozenset(get_args(Kind)), "en"))
    took_s = time.process_time() - began
    print(f"{len(text)} characters: {took_s * 1000:.1f} ms")


def _share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.2f} ({part}/{whole})"


if __name__ == "__main__":
    main()
