"""Checks the rules of docs/structure.md that no linter knows: `make check` runs it.

Each rule is a function that yields one sentence a violation. Exit status 1 when there is any.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("deployments", "antiphon", "api", "pipelines", "models", "db", "telemetry", "configs")
MAX_LINES, MAX_FILES, MAX_PREFIXED = 600, 15, 2
# Vague words, which no reader searches for; docs/glossary.md has the terms of the field.
BANNED = ("nobody", "somebody", "whoever", "anybody", "anew", "foretold", "foretell")
# A request's id reaches the log lines below it; no function's result depends on it.
CONTEXT_VARIABLES = {"telemetry/tracing.py"}
UNEDITED = re.compile(r"/migrations/|^antiphon/types\.py$")
GROUPS = {
    "Services",
    "SpeechServices",
    "ChatServices",
    "VoiceServices",
    "PlatformServices",
    "InfrastructureServices",
}
GROUP_USERS = re.compile(
    r"api/(app|services|http/routing)\.py$"
    r"|api/(native|openai|inworld|deepgram|elevenlabs|cartesia|assemblyai)/"
    r"|api/(dialects|console|sockets|telephony|wyoming)/"
)


@cache
def tracked(*suffixes: str) -> list[str]:
    """Paths of the files that git tracks or would add, in the order of their names."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(f for f in listed.split() if f.endswith(suffixes) and (ROOT / f).is_file())


@cache
def source() -> list[str]:
    """Python files of the layers, without those that are never edited."""
    return [f for f in tracked(".py") if f.split("/")[0] in LAYERS and not UNEDITED.search(f)]


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: str) -> ast.Module:
    return ast.parse(text(path))


def sizes() -> Iterator[str]:
    """Limits on lines per file, files per folder, and files of one prefix."""
    for path in tracked(".py"):
        if (lines := text(path).count("\n")) > MAX_LINES:
            yield f"{path} has {lines} lines, at most {MAX_LINES}: split it"
    folders: dict[str, list[str]] = defaultdict(list)
    for path in source() + [f for f in tracked(".py") if f.startswith("benchmarks/")]:
        folder, _, name = path.rpartition("/")
        if name != "__init__.py":
            folders[folder].append(name.removesuffix(".py"))
    for folder, names in folders.items():
        if len(names) > MAX_FILES:
            yield f"{folder}/ has {len(names)} files, at most {MAX_FILES}: make a folder"
        prefixes: dict[str, list[str]] = defaultdict(list)
        for name in names:
            prefixes[name.split("_")[0]].append(name)
        for prefix, alike in prefixes.items():
            if len(alike) > MAX_PREFIXED:
                yield f"{folder}/: {', '.join(alike)} begin alike: make a folder {prefix}/"


def words() -> Iterator[str]:
    """Plain technical English, in code and documentation."""
    pattern = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)
    for path in tracked(".py", ".md"):
        if path in ("tools/house.py", "CHANGELOG.md") or "/migrations/" in path:
            continue
        prose = _prose_of_test(path) if path.startswith("tests/") else enumerate(_lines(path), 1)
        for number, line in prose:
            if found := pattern.search(line):
                yield f"{path}:{number}: {found[0]!r} is not a technical term"


def _lines(path: str) -> list[str]:
    return text(path).splitlines()


def _prose_of_test(path: str) -> Iterator[tuple[int, str]]:
    """Names, comments and docstrings; other strings are data, such as texts that are spoken."""
    if path.endswith(".md"):
        yield from enumerate(_lines(path), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text(path)).readline):
        is_data = token.type == tokenize.STRING and not token.string.startswith('"""')
        if not is_data:
            yield token.start[0], token.string


def glossary() -> Iterator[str]:
    """Each term of docs/glossary.md occurs in the module that it names."""
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]+)` \|", text("docs/glossary.md"), re.MULTILINE)
    if not rows:
        yield "docs/glossary.md has no rows"
    for terms, path in rows:
        place = ROOT / path
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        if not files:
            yield f"docs/glossary.md: there is no {path}"
            continue
        content = " ".join(" ".join(f.read_text(encoding="utf-8").split()) for f in files).lower()
        for term in terms.split(", "):
            if term.lower() not in content:
                yield f"docs/glossary.md: {term!r} does not occur in {path}"


def class_names() -> Iterator[str]:
    """Class names are unique, so that a search finds one definition."""
    defined: dict[str, list[str]] = defaultdict(list)
    for path in source():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(path)
    for name, paths in sorted(defined.items()):
        if len(paths) > 1:
            yield f"the class {name} is defined in {', '.join(paths)}"


def imports() -> Iterator[str]:
    """No import cycles; imports under TYPE_CHECKING count too."""
    modules = {f.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for f in source()}
    graph: dict[str, set[str]] = {}
    for path in source():
        module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        graph[module] = _imported(path) & modules - {module}
    # Kahn's algorithm: modules that remain, after those without imports are removed, form a cycle.
    while free := [module for module, needs in graph.items() if not needs & graph.keys()]:
        for module in free:
            del graph[module]
    while leaf := [m for m in graph if not any(m in needs for needs in graph.values())]:
        for module in leaf:
            del graph[module]
    if graph:
        yield f"these modules import each other in a circle: {', '.join(sorted(graph))}"


def _imported(path: str) -> set[str]:
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def tables() -> Iterator[str]:
    """`api` imports no database tables: it reads rows by the field names of its own schemas."""
    rows = {
        node.name
        for path in source()
        if path.startswith("db/")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and any(k.arg == "table" for k in node.keywords)
    }
    for path in source():
        if path.startswith("api/"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("db."):
                    for alias in node.names:
                        if alias.name in rows:
                            yield f"{path} imports the table {alias.name}"


def groups() -> Iterator[str]:
    """Only routes and socket handlers take a group of services."""
    for path in source():
        if GROUP_USERS.match(path):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "api.services":
                for alias in node.names:
                    if alias.name in GROUPS and not path.startswith("deployments/gateway/"):
                        yield f"{path} takes the group {alias.name}: pass what it needs"


def excepts() -> Iterator[str]:
    """A broad except that does not re-raise has its reason in a comment."""
    for path in source():
        lines = text(path).splitlines()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _re_raises(node):
                near = lines[node.lineno - 2 : node.lineno + 1]
                if not any("#" in line for line in near):
                    yield f"{path}:{node.lineno}: a broad except without its reason"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def _re_raises(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def context_variables() -> Iterator[str]:
    """No ContextVar: what a result depends on is passed as an argument."""
    for path in source():
        if "ContextVar(" in text(path) and path not in CONTEXT_VARIABLES:
            yield f"{path} makes a ContextVar: pass an argument"


RULES = (
    sizes,
    words,
    glossary,
    class_names,
    imports,
    tables,
    groups,
    excepts,
    context_variables,
)


def main() -> int:
    found = [f"{rule.__name__}: {one}" for rule in RULES for one in rule()]
    for line in found:
        print(line, file=sys.stderr)
    print(f"house: {len(RULES)} rules, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
