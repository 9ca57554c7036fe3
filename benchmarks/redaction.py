"""Precision and recall of the redaction of personal data, and what it costs.

    python -m benchmarks.redaction            the table of docs/security.md
    python -m benchmarks.redaction --errors   and the errors in the tuned half

The sentences of `redaction.yaml` are our own; the held-out half was written before the patterns.
An entity is found when all its letters and digits are masked, whatever the mask is named (a title
before a name may stay); a mask is right when it overlaps an entity of its kind. `number`, which is
any four digits, is a rule and not measured.
"""

import argparse
import re
import time
from collections import Counter
from pathlib import Path
from typing import get_args

import yaml

from configs.schema.personal_data import Kind, Redaction
from pipelines.text.redaction import Entity, find_entities

LABEL = re.compile(r"\{(\w+) ([^}]*)\}")
TITLE = re.compile(r"^(?:(?:Mr|Mrs|Ms|Dr|Prof|Professor)\b\.? ?)+")
MEASURED = frozenset(get_args(Kind)) - {"number"}


def labelled(sentence: str) -> tuple[str, list[Entity]]:
    """The text without its marks, and its entities."""
    text, entities, at = "", [], 0
    for mark in LABEL.finditer(sentence):
        text += sentence[at : mark.start()]
        entities.append(Entity(mark[1], len(text), len(text) + len(mark[2])))  # type: ignore[arg-type]
        text, at = text + mark[2], mark.end()
    return text + sentence[at:], entities


def measure(sentences: list[str], show: bool = False) -> dict[str, Counter[str]]:
    """Counts of each kind: `all` and `found` of the labels, `made` and `right` of the masks."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in sorted(MEASURED)}
    for sentence in sentences:
        text, wanted = labelled(sentence)
        found = find_entities(text, Redaction(MEASURED))
        hidden = {at for one in found for at in range(one.start, one.end)}
        for one in wanted:
            said = text[one.start : one.end]
            skip = len(title[0]) if (title := TITLE.match(said)) else 0
            places = range(one.start + skip, one.end)
            is_found = all(at in hidden for at in places if text[at].isalnum())
            counts[one.kind].update(all=1, found=is_found)
            if show and not is_found:
                print(f"  missed {one.kind}: {text!r}: {said!r}")
        for one in found:
            is_right = any(
                o.kind == one.kind and o.start < one.end and one.start < o.end for o in wanted
            )
            counts[one.kind].update(made=1, right=is_right)
            if show and not is_right:
                print(f"  wrong {one.kind}: {text!r}: {text[one.start : one.end]!r}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--errors", action="store_true")
    show = parser.parse_args().errors
    halves = yaml.safe_load(Path(__file__).with_name("redaction.yaml").read_text("utf-8"))
    for half, styles in halves.items():
        for style, sentences in styles.items():
            counts = measure(sentences, show and half == "tuned")
            print(f"{half}, {style}, {len(sentences)} sentences")
            for kind, one in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
                right, found = one["right"] / max(one["made"], 1), one["found"] / max(one["all"], 1)
                of_masks, of_labels = (
                    f"{one['right']}/{one['made']}",
                    f"{one['found']}/{one['all']}",
                )
                print(f"| {kind} | {right:.2f} ({of_masks}) | {found:.2f} ({of_labels}) |")
    text = " ".join(labelled(one)[0] for one in halves["tuned"]["transcript"]) * 4
    began = time.process_time()
    find_entities(text, Redaction(frozenset(get_args(Kind)), "en"))
    took_s = time.process_time() - began
    print(f"{len(text)} characters: {took_s * 1000:.1f} ms")


if __name__ == "__main__":
    main()
