"""The console's Markdown, run by Node with elements that are plain objects."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from api.console.routes import STATIC_DIR

TIMES = Path(__file__).with_name("markdown_times.mjs")
STUB = """
const children = (given) => given.flat(3).filter((one) => one !== undefined);
export function h(name, properties, ...more) {
  const has = properties?.constructor === Object && !properties.name;
  const made = { name, ...(has && properties.href ? { href: properties.href } : {}) };
  made.children = children(has ? more : [properties, ...more]);
  made.append = (...given) => made.children.push(...children(given));
  return made;
}
export const copyButton = () => undefined;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("node") is None:
        pytest.skip("node is not installed, so the console's Markdown was NOT tried")
    shutil.copy(STATIC_DIR / "js/markdown.js", tmp_path)
    (tmp_path / "ui.js").write_text(STUB)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return tmp_path


def run(*command: str) -> Any:
    done = subprocess.run(["node", *command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def shown(folder: Path, text: str) -> str:
    """The elements as tags."""
    (folder / "show.js").write_text(
        'import { markdown } from "./markdown.js";\n'
        "const tags = (one) => one.name ? `<${[one.name, one.href].filter(Boolean).join(' ')}>"
        "${one.children.map(tags).join('')}</>` : one;\n"
        f"console.log(JSON.stringify(markdown({json.dumps(text)}).children.map(tags).join('')));"
    )
    return str(run(str(folder / "show.js")))


def test_markdown_of_any_text_takes_time_in_proportion_to_its_length(folder: Path) -> None:
    # Without the garbage collector's threads, whose time would be counted too.
    flags = ("--max-semi-space-size=256", "--single-threaded")
    ratios = run(*flags, str(TIMES), str(folder))
    assert len(ratios) > 12
    # 4 is linear and 16 quadratic.
    assert not {name: ratio for name, ratio in ratios.items() if ratio > 10}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a `b*c*` d", "a <code>b*c*</> d"),
        ("``a`", "`<code>a</>"),
        ("`a``", "<code>a</>`"),
        ("``a``b", "<code>a</>b"),
        ("`a", "`a"),
        ("**a** *b* _c_", "<strong>a</> <em>b</> <em>c</>"),
        ("**a* b**", "**a* b**"),
        ("2*3*4 a_b_c", "2*3*4 a_b_c"),
        ("* a*", "<ul><li>a*</></>"),
        ("(*a*, _b_)", "(<em>a</>, <em>b</>)"),
        ("**", "**"),
        ("[a](https://b.c/d) e", "<a https://b.c/d>a</> e"),
        ("[a](http://) [b](ftp://c) [](http://d)", "[a](http://) [b](ftp://c) [](http://d)"),
        ("[a](http://b c) [d](http://e)", "[a](http://b c) <a http://e>d</>"),
        ("[[a](http://b)", "<a http://b>[a</>"),
        ("[a\n](http://b)", "[a\n](http://b)"),
        ("a *b\nc* d", "a *b\nc* d"),
    ],
)
def test_inline_marks_become_elements_and_others_stay_text(
    folder: Path, text: str, expected: str
) -> None:
    written = shown(folder, text)
    assert written.removeprefix("<p>").removesuffix("</>") == expected or written == expected
