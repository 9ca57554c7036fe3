"""The rules of `tools/house.py` that look at one file, in a small repository."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from configs.settings import PROJECT_DIR

RULES = ("starred_tuples", "openers", "variable_names", "summaries", "request_state")
BREACHES = {
    "starred_tuples": "def pay(ledger):\n    work = (1, 2)\n    ledger.capture(*work)\n",
    "openers": 'def cost():\n    """Of one request."""\n',
    "variable_names": "for one in []:\n    print(one)\n",
    "summaries": 'route("/voices", summary="The voices")\n',
    "request_state": 'def plan(scope):\n    return scope["state"]["plan"]\n',
}
ALLOWED = {
    "a list of variable length": "def pay(count):\n    kinds = ['part']\n    count(*kinds)\n",
    "an argument that was a tuple": "def pay(count, work):\n    count(*work)\n",
    "a binary layout": "def pay(struct):\n    parts = 1, 2\n    struct.pack('HH', *parts)\n",
    "the name of an argument": 'def cost(to: int):\n    """`to` is a moment."""\n',
    "whether of a bool": 'def is_free() -> bool:\n    """Whether it costs nothing."""\n',
    "a verb with a comma": 'route("/chat", summary="Chat, in the form of OpenAI")\n',
    "the title of the whole": 'FastAPI(summary="Text to speech")\n',
    "a field of a class": "class Charge:\n    made: int = 0\n",
    "the state of an application": "def plans(request):\n    return request.app.state.plans\n",
}


class Repository:
    """A folder with one module, which git would add."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in ("tools", "docs", "api", "db", "tests"):
            (folder / part).mkdir()
        shutil.copy(PROJECT_DIR / "tools/house.py", folder / "tools")
        (folder / "docs/glossary.md").write_text("| hold | `docs/glossary.md` |\n")
        self.declare("pyyaml")
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
        self.list_unclean()

    def declare(self, *requirements: str) -> None:
        lists = f"[dependency-groups]\nserver = {[*requirements]}\n"
        (self._folder / "pyproject.toml").write_text(lists)

    def list_unclean(self, **files: list[str]) -> None:
        lists = yaml.safe_dump({rule: files.get(rule, []) for rule in RULES})
        (self._folder / "tools/house.yaml").write_text(f"# A comment that stays.\n\n{lists}")

    def unclean(self) -> str:
        return (self._folder / "tools/house.yaml").read_text()

    def write(self, path: str, content: str) -> None:
        (self._folder / path).parent.mkdir(exist_ok=True)
        (self._folder / path).write_text(content)

    def check(self, *options: str) -> list[str]:
        """The violations that the program prints."""
        command = [sys.executable, "tools/house.py", *options]
        ended = subprocess.run(command, cwd=self._folder, capture_output=True, text=True)
        violations = ended.stderr.splitlines()
        assert ended.returncode == bool(violations), ended.stderr
        return violations


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize(("rule", "content"), BREACHES.items())
def test_a_breach_is_named_by_its_rule_and_line(
    repository: Repository, rule: str, content: str
) -> None:
    repository.write("api/voices.py", content)
    violations = repository.check()
    assert len(violations) == 1
    assert violations[0].startswith(f"{rule}: api/voices.py:")


@pytest.mark.parametrize(("rule", "content"), BREACHES.items())
def test_a_listed_file_may_stay_as_it_is_until_it_is_clean(
    repository: Repository, rule: str, content: str
) -> None:
    repository.list_unclean(**{rule: ["api/voices.py"]})
    repository.write("api/voices.py", content)
    assert repository.check() == []

    repository.write("api/voices.py", "")
    assert len(repository.check()) == 1
    assert repository.check("--shrink") == []
    assert "api/voices.py" not in repository.unclean()
    assert repository.unclean().startswith("# A comment that stays.\n\n")


def test_shrinking_adds_no_file_and_drops_those_that_are_gone(repository: Repository) -> None:
    repository.list_unclean(openers=["api/gone.py"])
    repository.write("api/voices.py", BREACHES["openers"])
    assert len(repository.check("--shrink")) == 1
    assert "api/" not in repository.unclean()


@pytest.mark.parametrize("content", ALLOWED.values(), ids=ALLOWED)
def test_what_only_looks_like_a_breach_is_allowed(repository: Repository, content: str) -> None:
    repository.write("api/voices.py", content)
    assert repository.check() == []


@pytest.mark.parametrize(
    "use",
    [
        "request.state.plan",
        "setattr(request.state, 'plan', 1)",
        "scope.get('state', {})",
        "scope.setdefault('state', {})",
        "connection['state']",
    ],
)
def test_only_the_module_of_the_context_uses_the_state_of_a_request(
    repository: Repository, use: str
) -> None:
    repository.write("api/voices.py", use)
    assert len(repository.check()) == 1

    repository.write("api/voices.py", "")
    repository.write("api/http/context.py", use)
    assert repository.check() == []


def test_clauses_of_sql_are_starred_only_in_the_database_layer(repository: Repository) -> None:
    clause = "def page(select):\n    mine = (1, 2)\n    select(1).where(*mine)\n"
    repository.write("db/voices.py", clause)
    assert repository.check() == []

    repository.write("api/voices.py", clause)
    assert len(repository.check()) == 1


def test_the_name_of_a_test_has_twelve_words_at_most(repository: Repository) -> None:
    allowed = "_".join(["word"] * 12)
    repository.write("tests/test_voices.py", f"def test_{allowed}():\n    pass\n")
    assert repository.check() == []

    repository.write("tests/test_voices.py", f"def test_{allowed}_more():\n    pass\n")
    (violation,) = repository.check()
    assert violation.startswith("test_names: tests/test_voices.py:1: ")


def test_a_package_that_is_imported_is_declared(repository: Repository) -> None:
    repository.write(
        "api/speech.py", "import json\n\nimport numpy as np\nfrom yaml import safe_load\n"
    )
    violation = "dependencies: api/speech.py imports numpy: declare numpy in pyproject.toml"
    assert repository.check() == [violation]
    repository.declare("NumPy>=2", "pyyaml>=6")
    assert repository.check() == []
