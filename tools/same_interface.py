"""Compares the public interface of two checkouts: what clients, dashboards and operators rely on.

    python tools/same_interface.py 0.9.0            the working tree against a revision
    python tools/same_interface.py 0.9.0 main       two revisions
    python tools/same_interface.py ../before .      two folders
    python tools/same_interface.py 0.9.0 --additions-pass

It compares the OpenAPI document without its texts (but with operation ids), metrics with their
labels, environment variables, settings, keys of configuration files, and commands with their
options. Prints a line per difference. Exit status: 1 if there are any (with --additions-pass: any
that are not additions), 2 if an interface cannot be read.
"""

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {"summary", "description", "title", "example", "examples", "externalDocs"}
# Objects whose keys are names of the interface; the keys of others are words of OpenAPI.
NAMES = {
    "paths",
    "properties",
    "patternProperties",
    "schemas",
    "securitySchemes",
    "responses",
    "content",
    "headers",
    "mapping",
    "enum",
    "tags",
    "parameters",
    "anyOf",
    "oneOf",
}
VARIABLE = re.compile(
    r'(?:environ(?:\.get\(|\[)|environment\.\w+\(|getenv\(|envvar=)\s*"([A-Z][A-Z_]+)"'
)

Kind = Literal["removed", "changed", "added"]
Tree = dict[str, Any]
"""A part of the interface: names and values, nested."""


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A difference between two interfaces; `kind` is "added" only if no caller is affected."""

    kind: Kind
    place: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        end = f": {self.detail}" if self.detail else ""
        return f"{self.kind:<8} {' > '.join(self.place)}{end}"


def differences(before: Any, after: Any, place: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Yields what differs between two trees; a branch that is missing is one difference."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        if before != after:
            yield Difference("changed", place, f"{shown(before)} → {shown(after)}")
        return
    for name in sorted(before.keys() | after.keys()):
        here = (*place, name)
        if name not in after:
            yield Difference("removed", here, shown(before[name]))
        elif name not in before:
            kind: Kind = "added" if is_addition(here, after[name]) else "changed"
            yield Difference(kind, here, shown(after[name]))
        else:
            yield from differences(before[name], after[name], here)


def is_addition(place: tuple[str, ...], value: Any) -> bool:
    """Whether callers of the old interface cannot notice the new branch."""
    if place[0] != "document":
        return True
    if place[-2] == "parameters":
        return not value.get("required")
    is_method = len(place) == 4 and place[1] == "paths"
    return is_method or place[-2] in NAMES and place[-3] not in NAMES  # or a property's name


def shown(value: Any) -> str:
    """The value in a line of text; nothing for a branch."""
    return "" if isinstance(value, Mapping) or value is True else json.dumps(value)


def without_texts(value: Any, *, names: bool = False) -> Any:
    """The document as a tree without summaries, descriptions, titles and examples.

    With `names`, the keys of `value` are names, so that `summary` is not a text. A list becomes a
    branch whose keys are the names, references or types of its elements: their order means nothing.
    """
    if isinstance(value, Mapping):
        return {
            str(key): without_texts(inner, names=key in NAMES and not names)
            for key, inner in value.items()
            if names or key not in TEXTS
        }
    if not isinstance(value, list):
        return value
    counts: Counter[str] = Counter()
    branch: Tree = {}
    for element in value:
        label = label_of(element)
        counts[label] += 1
        key = label if counts[label] == 1 else f"{label} ({counts[label]})"
        branch[key] = without_texts(element) if isinstance(element, (Mapping, list)) else True
    return branch


def label_of(element: Any) -> str:
    """The name of an element of a list."""
    if not isinstance(element, Mapping):
        return str(element)
    if "name" in element:
        return f"{element.get('in', '')} {element['name']}".strip()
    labels = (element.get(key) for key in ("$ref", "const", "type"))
    return str(next((label for label in labels if label is not None), "schema"))


def document() -> Tree:
    """The OpenAPI document."""
    described = import_module("api.app").routed_app().openapi()
    described["info"].pop("version", None)
    return without_texts(json.loads(json.dumps(described)))  # type: ignore[no-any-return]


def metrics() -> Tree:
    """Metrics with their kinds and labels, and with the labels' values if these are listed."""
    tree: Tree = {}
    for attribute, metric in _yaml("telemetry/metrics.yaml")["metrics"].items():
        kind = next(kind for kind in ("counter", "gauge", "histogram") if kind in metric)
        labels = metric.get("labels", {})
        if isinstance(labels, list):
            labels = dict.fromkeys(labels)
        values = {name: dict.fromkeys(map(str, each or ()), True) for name, each in labels.items()}
        tree[metric.get("name", attribute)] = {"kind": kind, "labels": values}
    return tree


def variables() -> Tree:
    """Environment variables that a process reads, by the text of the sources."""
    folders = ("antiphon", "api", "configs", "db", "deployments", "models", "pipelines")
    sources = [path for folder in folders for path in Path(folder).rglob("*.py")]
    return dict.fromkeys(
        (name for path in sources for name in VARIABLE.findall(path.read_text("utf-8"))), True
    )


def settings() -> Tree:
    """Fields of the classes of `configs/settings.py`."""
    classes = ast.parse(Path("configs/settings.py").read_text("utf-8")).body
    return {
        each.name: {
            line.target.id: True
            for line in each.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        }
        for each in classes
        if isinstance(each, ast.ClassDef)
    }


def configuration() -> Tree:
    """Top-level keys of each configuration file, and the names of files in its folders."""
    tree: Tree = {}
    for path in sorted(Path("configs").rglob("*.yaml")):
        content = _yaml(path) if path.parent.name == "configs" else None
        tree[str(path)] = dict.fromkeys(map(str, content), True) if type(content) is dict else True
    return tree


def commands() -> Tree:
    """Commands of `antiphon` with their options and arguments, and those of the operator.

    Revisions before 1.0 may use argparse.
    """
    import click

    def of(command: click.Command) -> Tree:
        command = command.imported() if hasattr(command, "imported") else command
        options = {
            name: True for each in command.params for name in each.opts + each.secondary_opts
        }
        inner = getattr(command, "commands", {})
        return options | {name: of(each) for name, each in inner.items()}

    def of_parser(parser: argparse.ArgumentParser) -> Tree:
        tree: Tree = {}
        for action in parser._actions:
            tree |= dict.fromkeys(action.option_strings or [action.dest], True)
            if isinstance(action, argparse._SubParsersAction):
                tree |= {name: of_parser(each) for name, each in action.choices.items()}
        return tree

    operator = import_module("deployments.operator")
    known = of_parser(operator._parser()) if hasattr(operator, "_parser") else of(operator.operator)
    program = import_module("deployments.cli.main")
    if hasattr(program, "add_commands"):  # older revisions add them when they are imported
        program.add_commands(program.antiphon)
    return {"antiphon": of(program.antiphon), "operator": known}


def _yaml(path: str | Path) -> Any:
    import yaml

    return yaml.safe_load(Path(path).read_text("utf-8"))


READERS = (document, metrics, variables, settings, configuration, commands)


def interface_of(checkout: Path) -> Tree:
    """The interface of a checkout, read by a process that imports its packages."""
    ran = subprocess.run(
        [sys.executable, Path(__file__).resolve(), "--read"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
    )
    if ran.returncode:
        print(f"the interface of {checkout} cannot be read", file=sys.stderr)
        raise SystemExit(2)
    tree: Tree = json.loads(ran.stdout.splitlines()[-1])
    return tree


def checkout_of(name: str, stack: ExitStack) -> Path:
    """The folder of that name, or the files of that revision in a temporary folder."""
    if Path(name).is_dir():
        return Path(name).resolve()
    packed = subprocess.run(["git", "archive", name], cwd=ROOT, stdout=subprocess.PIPE)
    if packed.returncode:
        raise SystemExit(2)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", help="a revision or a folder")
    parser.add_argument("after", nargs="?", default=str(ROOT), help="the working tree by default")
    parser.add_argument("--additions-pass", action="store_true", help="additions do not fail")
    options = parser.parse_args()
    with ExitStack() as stack:
        before = interface_of(checkout_of(options.before, stack))
        after = interface_of(checkout_of(options.after, stack))
    lines = sorted(differences(before, after))
    for line in lines:
        print(line)
    counts = Counter(line.kind for line in lines)
    print(", ".join(f"{counts[kind]} {kind}" for kind in ("removed", "changed", "added")))
    return int(any(line.kind != "added" or not options.additions_pass for line in lines))


if __name__ == "__main__":
    if sys.argv[1:] == ["--read"]:
        print("\n" + json.dumps({read.__name__: read() for read in READERS}))
        sys.exit(0)
    sys.exit(main())
