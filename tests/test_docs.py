"""The pages against the program: what they name exists, and what they have to name is there."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from api.http.errors import STATUS_OF_CODE
from configs.load import CONFIGS_DIR, load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import PROJECT_DIR
from deployments.cli.administration import operator
from models.registry import STT
from pipelines.text.language_names import grade_of
from telemetry.metrics import REGISTRY
from telemetry.reports import REPORT_AGE
from tests.openapi import document

PAGES = [
    PROJECT_DIR / "README.md",
    PROJECT_DIR / "SECURITY.md",
    *sorted((PROJECT_DIR / "docs").rglob("*.md")),
]
TEXTS = {page.relative_to(PROJECT_DIR).as_posix(): page.read_text() for page in PAGES}
API, OPERATING = TEXTS["docs/api.md"], TEXTS["docs/operating.md"]
SECTIONS = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_to_a_page_leads_to_a_file_and_a_section(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in [_anchor(one) for one in SECTIONS.findall(linked.read_text())], target


def test_each_file_that_a_page_names_exists() -> None:
    folders = "api|benchmarks|configs|db|deployments|docs"
    folders += "|models|pipelines|telemetry|tests|tools"
    for name, text in TEXTS.items():
        for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", text):
            # NAME and other capitals are to be replaced, in recipes.
            assert (PROJECT_DIR / path).exists() or re.search(r"[A-Z]{2}", path), (name, path)


def test_the_table_of_languages_has_the_grades_of_the_recogniser() -> None:
    errors = STT.read("stt/whisper_base").character_errors
    rows = re.findall(r"^\| ([a-z]{2}) \| (\w+) \| (\S+)[^|]*\| (\S+)", API, re.MULTILINE)
    assert {"gu", "kn", "ml", "pa"} < {language for language, *_ in rows} <= errors.keys()
    for language, grade, voice, recordings in rows:
        assert grade == grade_of(errors[language])
        measured = voice if recordings == "–" else recordings
        assert abs(errors[language] - int(measured)) <= 0.5


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_each_example_is_valid_in_its_language() -> None:
    examples = [
        (name, *example)
        for name, text in TEXTS.items()
        for example in re.findall(r"^```(bash|json|python)\n(.*?)^```", text, re.M | re.S)
    ]
    assert len(examples) > 20
    for name, language, example in examples:
        if language == "python":
            ast.parse(example, name)
        elif language == "bash":
            checked = subprocess.run(["bash", "-n"], input=example, text=True, capture_output=True)
            assert not checked.stderr.replace("<this repository>", ""), (name, example)
        else:
            for value in _json_values(example):
                json.loads(value)


def _json_values(example: str) -> Iterator[str]:
    """A value in some lines, or one in each line."""
    lines = example.splitlines()
    yield from [example] if lines[1:] and lines[1].startswith((" ", "}")) else lines


PROGRAM = re.compile(r"^\[`[\w.]+`\]\((?:\.\./)?(examples/[\w.]+)\)$", re.MULTILINE)
EXAMPLE = re.compile(r"^ *```(\S+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
DISTRIBUTIONS = {
    "agents": "openai-agents",
    "chatterbox": "chatterbox-tts",
    "deepgram": "deepgram-sdk",
    "livekit": "livekit-agents",
    "pipecat": "pipecat-ai",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_page_names_the_packages_of_its_examples(page: Path) -> None:
    text = page.read_text()
    files = [PROJECT_DIR / "docs" / name for name in PROGRAM.findall(text)]
    text += "".join(f"\n```{file.suffix[1:]}\n{file.read_text()}```" for file in files)
    python, npm = (
        {name for line in re.findall(command, text) for name in re.findall(r"[@\w/-]+", line)}
        for command in (r"(?:pip install|pip:) ([^\n`}]+)", r"npm install ([^\n`]+)")
    )
    if ".venv" in text or "client.md#installation" in text:
        python |= {"antiphon", "websockets"}
    if "runtime_env" in text:  # of the service's own cluster
        python |= {"fastapi", "pydantic", "ray"}
    for language, example in EXAMPLE.findall(text):
        if language in ("python", "py"):
            assert sorted(_distributions(ast.parse(example)) - python) == []
        elif language in ("js", "mjs"):
            modules = set(re.findall(r'from "((?:@[\w-]+/)?[\w-]+)["/]', example))
            assert sorted(modules - npm) == []


def _distributions(program: ast.Module) -> set[str]:
    """The distributions that a program imports, apart from the standard library."""
    modules = set[str]()
    for node in ast.walk(program):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "livekit.plugins":
            modules |= {f"livekit-plugins-{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
    return {DISTRIBUTIONS.get(top, top) for top in tops}


def test_git_ignores_the_files_that_examples_leave_in_the_checkout() -> None:
    name = r"([\w-][\w.-]*\.\w+)"
    written = re.compile(rf'(?:[^<>=-]> |-o |-keyout |-out |(?:open|Path|_file|File)\("){name}')
    programs = [path.read_text() for path in (PROJECT_DIR / "docs" / "examples").iterdir()]
    examples = [example for text in TEXTS.values() for _, example in EXAMPLE.findall(text)]
    files = {file for text in examples + programs for file in written.findall(text)}
    assert len(files) > 8
    command = ["git", "check-ignore", "--no-index", *files]
    ignored = subprocess.run(command, cwd=PROJECT_DIR, text=True, capture_output=True).stdout
    assert sorted(files - set(ignored.split())) == []


def test_each_documented_route_is_in_the_list_of_endpoints() -> None:
    listed = set(re.findall(r"(/[^\s`,]*)", re.sub(r"{\w+}", "{}", API)))
    paths = {re.sub(r"{\w+}", "{}", path) for path in document()["paths"]}
    assert sorted(paths - listed) == []


def test_each_error_is_listed_with_its_status() -> None:
    rows = re.findall(r"^\| ([45][\d, ]+) \| (.+) \|$", API, re.MULTILINE)
    listed = {
        (code, int(status))
        for statuses, codes in rows
        for code in re.findall(r"`(\w+)`", codes)
        for status in statuses.split(", ")
    }
    assert STATUS_OF_CODE.items() <= listed


def test_each_setting_is_listed_with_its_meaning() -> None:
    sources = [path.read_text() for path in CONFIGS_DIR.glob("*.py")]
    read = r'(?:environ(?:\.get\(|\[)|environment\.\w+\()\s*"([A-Z_]+)"'
    names = {name for source in sources for name in re.findall(read, source)}
    assert len(names) > 15
    assert sorted(name for name in names if f"`{name}`" not in OPERATING) == []


def test_each_page_of_a_server_names_its_port_variable() -> None:
    for program in (PROJECT_DIR / "docs" / "examples").iterdir():
        for name in re.findall(r"\w+_PORT", program.read_text()):
            texts = [text for text in TEXTS.values() if f"docs/examples/{program.name}" in text]
            assert texts, program.name
            assert all(f"`{name}`" in text for text in texts), (program.name, name)


def test_each_key_of_admission_control_is_listed() -> None:
    admission = yaml.safe_load((CONFIGS_DIR / "admission.yaml").read_text())
    keys = admission.keys() | admission["slow_clients"].keys()
    assert sorted(key for key in keys if f"`{key}" not in OPERATING) == []


def test_the_table_of_plans_has_the_numbers_of_the_configuration() -> None:
    for plan in load_yaml(PlansConfig, "plans").plans:
        found = re.search(rf"^\| `{plan.id}` \| (.+) \|$", TEXTS["docs/platform.md"], re.MULTILINE)
        assert found, plan.id
        *numbers, chats, storage = found[1].replace(",", "").split(" | ")
        amount, unit = chats.split()
        shown = [*map(float, numbers), float(amount) * {"MB": 1, "GB": 1000}[unit]]
        shown.append(float(storage.removesuffix(" GB")))
        assert shown == [plan.price, *plan.limits.model_dump().values()]


def test_each_command_of_the_operator_is_listed() -> None:
    assert sorted(name for name in operator.commands if f"| `{name}" not in OPERATING) == []


def test_each_metric_that_a_page_names_exists() -> None:
    known = {*REGISTRY._names_to_collectors, REPORT_AGE}
    named = {name for text in TEXTS.values() for name in re.findall(r"`(antiphon_\w+)", text)}
    assert "antiphon_slow_clients_total" in named
    assert sorted(named - known) == []


def test_each_sed_of_a_page_names_another_model_of_one_deployment(tmp_path: Path) -> None:
    edits = [
        (page.name, *edit)
        for page in PAGES
        for edit in re.findall(r"^ *(sed -i \S.*?) (\S*serve\w*\.yaml)$", page.read_text(), re.M)
    ]
    assert edits
    for page, command, config in edits:
        edited = tmp_path / Path(config).name
        original = (PROJECT_DIR / config).read_text()
        edited.write_text(original)
        subprocess.run(["bash", "-c", f"{command} {edited}"], check=True)
        before, after = (
            [entry for app in yaml.safe_load(text)["applications"] for entry in app["deployments"]]
            for text in (original, edited.read_text())
        )
        changed = [new for old, new in zip(before, after, strict=True) if old != new]
        assert len(changed) == 1, (page, command, changed)
