"""Checks the rules of docs/structure.md that no linter knows: `make check` runs it.

Each rule is a function that yields a sentence per violation. Exit status 1 if there are any. Rules
of FILE_RULES look at one file, and have a list of files in tools/house.yaml that do not follow them
yet. The lists only shrink: a listed file that has become clean is a violation, too, and is taken
off by `tools/house.py --shrink`.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
UNCLEAN = "tools/house.yaml"
LAYERS = ("deployments", "antiphon", "api", "pipelines", "models", "db", "telemetry", "configs")
MAX_LINES, MAX_FILES, MAX_PREFIXED = 600, 15, 2
MAX_WORDS = 12  # of a test's name, without `test`
# Vague words, which no reader searches for; docs/glossary.md has the terms of the field.
BANNED = ("nobody", "somebody", "whoever", "anybody", "anew", "foretold", "foretell")
# Log lines take the request's id from there; no function's result depends on it.
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
PUBLIC_INDEX = {"https://pypi.org", "https://files.pythonhosted.org"}
# The module that keeps what a request carries in the state of its scope.
CONTEXT = "api/http/context.py"
# Parts that may not take a group of services: they serve every route, and name what they need.
GROUPLESS = re.compile(
    r"api/(http/(?!routing\.py$)|reference/|guide/)|(?!api/|deployments/gateway/)"
)
# Calls whose arguments are a list by nature: clauses of SQL, commands and binary layouts.
SQL_CLAUSES = {"group_by", "order_by", "select", "select_columns", "where"}
VARIADIC = {"_run", "create_subprocess_exec", "pack"}
UNNAMED = {"found", "heard", "known", "made", "one", "said", "shown", "told"}
PREPOSITIONS = set(
    "about above after against along among around as at before behind below beneath beside besides"
    " between beyond by despite during except for from in inside into like near of off on onto out"
    " outside over past per since than through throughout till to toward towards under until up"
    " upon via with within without".split()
)
PRONOUNS = set("he her hers his it its she that their theirs them these they this those".split())
PRONOUNS |= set("which who whom whose".split())
IMPERATIVES = set(
    "accept add answer cancel change chat check choose clone confirm create delete detect download"
    " end enrol erase export get give import issue keep list log make merge move offer open pause"
    " preview put read redeem redeliver refresh register remove rename replace report resend"
    " respond restore resume revoke rotate run save search send serve set show sign speak start"
    " stop stream synthesise transcribe translate turn undo update upload validate verify".split()
)
FileRule = Callable[[str], Iterator[tuple[int, str]]]
"""Yields the line and a sentence for each violation in the file of that path."""


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
def nodes(path: str) -> list[ast.AST]:
    """The nodes of a module's syntax tree."""
    return [*ast.walk(ast.parse(text(path)))]


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
            if word := pattern.search(line):
                yield f"{path}:{number}: {word[0]!r} is not a technical term"


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
        for node in nodes(path):
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
    modules = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return modules


def dependencies() -> Iterator[str]:
    """Each imported package is declared: by the client, or in a dependency group of its users."""
    project = tomllib.loads(text("pyproject.toml"))
    groups = project["dependency-groups"]
    lists = [groups.get(name, []) for name in ("server", "espeak", "gpu", "vllm", "dev")]
    lists.append(project.get("build-system", {}).get("requires", []))
    declared = {_normalised(requirement) for listed in lists for requirement in listed}
    tools = declared | {_normalised(requirement) for requirement in groups.get("clients", [])}
    client = declared
    if "antiphon/pyproject.toml" in tracked(".toml"):
        client_project = tomllib.loads(text("antiphon/pyproject.toml"))
        lists = [
            client_project["project"]["dependencies"],
            client_project["build-system"]["requires"],
        ]
        client = {_normalised(requirement) for listed in lists for requirement in listed}
    distributions = packages_distributions()
    own = {f.split("/")[0] for f in tracked(".py")} | sys.stdlib_module_names
    for path in [*source(), *(f for f in tracked(".py") if f.startswith("tools/"))]:
        for package in sorted({module.split(".")[0] for module in _imported(path)} - own):
            # A package that is not installed here is assumed to be named like its module.
            names = distributions.get(package, [package])
            folder = path.split("/")[0]
            known = {"antiphon": client, "tools": tools}.get(folder, declared)
            if known.isdisjoint(map(_normalised, names)):
                yield f"{path} imports {package}: declare {names[0]} in pyproject.toml"


def _normalised(requirement: str) -> str:
    """The name of a requirement, as package registries compare names."""
    name = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def tables() -> Iterator[str]:
    """`api` imports no database tables: it reads rows by the field names of its own schemas."""
    rows = {
        node.name
        for path in source()
        if path.startswith("db/")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and any(k.arg == "table" for k in node.keywords)
    }
    for path in source():
        if path.startswith("api/"):
            for node in nodes(path):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("db."):
                    for alias in node.names:
                        if alias.name in rows:
                            yield f"{path} imports the table {alias.name}"


def groups() -> Iterator[str]:
    """Only routes and socket handlers take a group of services."""
    for path in source():
        if not GROUPLESS.match(path):
            continue
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "api.services":
                for alias in node.names:
                    if alias.name in GROUPS:
                        yield f"{path} takes the group {alias.name}: pass what it needs"


def excepts() -> Iterator[str]:
    """A broad except that does not re-raise has its reason in a comment."""
    for path in source():
        lines = text(path).splitlines()
        for node in nodes(path):
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


def test_names() -> Iterator[str]:
    """The name of a test says in a few words what it tests."""
    for path in tracked(".py"):
        for node in nodes(path) if path.startswith("tests/") else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = len(node.name.removeprefix("test_").split("_"))
                if node.name.startswith("test_") and count > MAX_WORDS:
                    limit = f"has {count} words, at most {MAX_WORDS}"
                    yield f"{path}:{node.lineno}: the name {node.name} {limit}"


def lock_files() -> Iterator[str]:
    """uv.lock names no index but PyPI's, so that it does not depend on who wrote it."""
    for path in tracked(".lock"):
        for number, line in enumerate(_lines(path), 1):
            hosts = re.findall(
                r"\b(?:https?|file|ftp)://[^/\s\"']*|--(?:extra-)?index-url|--find-links", line
            )
            if foreign := [host for host in hosts if host not in PUBLIC_INDEX]:
                yield f"{path}:{number}: {foreign[0]} is not the public index"


def starred_tuples(path: str) -> Iterator[tuple[int, str]]:
    """No arguments are packed into a local tuple for a call: keywords name them."""
    allowed = VARIADIC | SQL_CLAUSES if path.startswith("db/") else VARIADIC
    for function in nodes(path):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inner = [*ast.walk(function)]
        packed = {name for node in inner for name in _tuples(node)}
        for call in inner if packed else ():
            if isinstance(call, ast.Call) and _last_name(call.func) not in allowed:
                for argument in call.args:
                    if isinstance(argument, ast.Starred) and _last_name(argument.value) in packed:
                        yield argument.lineno, f"*{ast.unparse(argument.value)}: name the arguments"


def _last_name(node: ast.expr) -> str:
    """`name` of a variable or an attribute of that name."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _tuples(node: ast.AST) -> Iterator[str]:
    """Names to which the node assigns a literal tuple, alone or among other names."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    pairs = [(target, node.value)]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = [*zip(target.elts, node.value.elts, strict=False)]
    for name, value in pairs:
        if isinstance(name, ast.Name) and isinstance(value, ast.Tuple):
            yield name.id


def openers(path: str) -> Iterator[tuple[int, str]]:
    """A docstring begins with a verb or a noun, so that it stands alone ("Whether" for a bool)."""
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = re.match(r"[^\w`]*(\w+)", ast.get_docstring(node) or "")
            word = first[1].lower() if first else ""
            is_bool = getattr(getattr(node, "returns", None), "id", None) == "bool"
            if word in PREPOSITIONS | PRONOUNS or word == "whether" and not is_bool:
                line = 1 if isinstance(node, ast.Module) else node.lineno
                yield line, f"a docstring begins with {word!r}: begin with a verb or a noun"


def variable_names(path: str) -> Iterator[tuple[int, str]]:
    """A variable is named for the thing it holds; fields and parameters are not checked."""
    classes = [node for node in nodes(path) if isinstance(node, ast.ClassDef)]
    fields = {id(field) for node in classes for field in node.body}
    for node in nodes(path):
        if id(node) not in fields:
            for name, line in _assigned(node):
                if name in UNNAMED:
                    yield line, f"the variable {name!r}: give it the name of the thing"


def _assigned(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that the node itself assigns, with their lines."""
    targets: list[ast.expr | None] = []
    match node:
        case ast.Assign():
            targets = [*node.targets]
        case ast.AnnAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor() | ast.comprehension():
            targets = [node.target]
        case ast.With() | ast.AsyncWith():
            targets = [item.optional_vars for item in node.items]
    for target in filter(None, targets):
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id, part.lineno


def summaries(path: str) -> Iterator[tuple[int, str]]:
    """The summary of a route is imperative: "List voices"."""
    if not path.startswith("api/"):
        return
    for node in nodes(path):
        # The summary given to FastAPI itself is the title of the whole API.
        if not isinstance(node, ast.Call) or _last_name(node.func) == "FastAPI":
            continue
        for argument in node.keywords:
            if argument.arg == "summary" and isinstance(argument.value, ast.Constant):
                first = re.split(r"\W", str(argument.value.value))[0]
                if first.lower() not in IMPERATIVES:
                    yield argument.value.lineno, f"{argument.value.value!r} begins with no verb"


def request_state(path: str) -> Iterator[tuple[int, str]]:
    """What a request carries is a field of `RequestContext`; an application has a state, too."""
    if not path.startswith("api/") or path == CONTEXT:
        return
    for node in nodes(path):
        match node:
            case ast.Attribute(attr="state", value=owner) if _last_name(owner) in ("app", "_app"):
                continue
            case (
                ast.Attribute(attr="state")
                | ast.Subscript(slice=ast.Constant("state"))
                | ast.Call(
                    ast.Attribute(attr="get" | "setdefault" | "pop"), [ast.Constant("state"), *_]
                )
            ):
                yield node.lineno, "the state of a request: use a field of RequestContext"


def ratchet(rule: FileRule, listed: list[str]) -> Iterator[str]:
    """Violations of files that are not listed, and listed files that have none."""
    violations = {path: sorted(set(rule(path))) for path in source()}
    for path in listed:
        if not violations.pop(path, None):
            yield f"{path} is clean: take it off the list (tools/house.py --shrink)"
    for path, of_file in violations.items():
        yield from (f"{path}:{line}: {violation}" for line, violation in of_file)


RULES = (
    sizes,
    words,
    glossary,
    class_names,
    imports,
    dependencies,
    tables,
    groups,
    excepts,
    context_variables,
    lock_files,
    test_names,
)
FILE_RULES = (starred_tuples, openers, variable_names, summaries, request_state)


def shrink(unclean: dict[str, list[str]]) -> None:
    """Takes the files that have become clean off the lists."""
    for rule in FILE_RULES:
        unclean[rule.__name__] = [
            f for f in unclean[rule.__name__] if f in source() and any(rule(f))
        ]
    head = text(UNCLEAN).partition("\n\n")[0]
    lists = yaml.safe_dump(unclean, sort_keys=False)
    (ROOT / UNCLEAN).write_text(f"{head}\n\n{lists}", encoding="utf-8")


def main() -> int:
    unclean: dict[str, list[str]] = yaml.safe_load(text(UNCLEAN))
    if sys.argv[1:] == ["--shrink"]:
        shrink(unclean)
    violations = [f"{rule.__name__}: {sentence}" for rule in RULES for sentence in rule()]
    for rule in FILE_RULES:
        sentences = ratchet(rule, unclean[rule.__name__])
        violations += [f"{rule.__name__}: {sentence}" for sentence in sentences]
    for line in violations:
        print(line, file=sys.stderr)
    print(f"house: {len(RULES + FILE_RULES)} rules, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
