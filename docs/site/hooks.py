"""What mkdocs does not do with the pages of docs/ by itself.

The pages are read on the code host too, so their links are those of the repository. README.md and
other files at its top become pages, a link to a sound becomes a player, and a link to any other
file becomes its path as code. A line that only links to a file of docs/examples/ is replaced by
that file. The page of all endpoints is written from the OpenAPI document, so that the search finds
them.
"""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
TOP = {"README.md": "index.md", "SECURITY.md": "SECURITY.md", "CHANGELOG.md": "CHANGELOG.md"}
STYLES = "stylesheets/guide.css"
ICON = "assets/icon.svg"
ENDPOINTS = "endpoints.md"
LANGUAGES = {".py": "python", ".html": "html", ".yaml": "yaml", ".mjs": "js"}
LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
MEDIA = re.compile(r"(!?)\[([^\[\]]+)\]\((?:docs/|(?:\.\./)*)(media/[^)\s]+)\)")
GUIDE = re.compile(r"\]\(/guide/([\w/-]+)\.html")
EXAMPLE = re.compile(r"^\[[^\]]+\]\((?:\.\./)*(?:docs/)?(examples/[\w.-]+)\)$", re.MULTILINE)
FILE_NAME = re.compile(r"^`(?:\w+/)*([\w-]+)\.md`$")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"<script>(.+?)</script>", re.DOTALL)


def on_config(config: Any) -> Any:
    # Only its path is used: the page of errors links from it, at whatever depth it is shown.
    config.site_url = "/guide/"
    return config


def on_files(files: Any, config: Any) -> Any:
    for name, page in TOP.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    css = (ROOT / "docs/site/guide.css").read_text("utf-8")
    files.append(File.generated(config, STYLES, content=css))
    icon = (ROOT / "api/console/static/icon.svg").read_text("utf-8")
    files.append(File.generated(config, ICON, content=icon))
    files.append(File.generated(config, ENDPOINTS, content=_endpoints()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    folder = "" if uri in TOP.values() else dirname(f"docs/{uri}")
    parts = FENCE.split(EXAMPLE.sub(_example, markdown))
    parts[::2] = [MEDIA.sub(lambda found: _media(found, uri), one) for one in parts[::2]]
    parts[::2] = [LINK.sub(lambda found: _link(found, folder, uri), one) for one in parts[::2]]
    return "".join(parts)


def _media(found: re.Match[str], uri: str) -> str:
    """A picture, or the player of a sound."""
    path = relpath(found[3], dirname(uri))
    if found[1]:
        return f"![{found[2]}]({path})"
    return f'{found[2]} <audio controls preload="none" src="{path}"></audio>'


def _endpoints() -> str:
    """Every operation with its first sentences, by parts of the service.

    The service's own environment makes the document; without it, the page only links to /docs.
    """
    head = "# All endpoints\n\n[The reference](/docs) has their fields, and sends requests."
    python = Path(os.environ.get("SERVICE_PYTHON", ROOT / ".venv/bin/python"))
    if not python.exists():
        return head
    code = "import json; from api.app import routed_app; print(json.dumps(routed_app().openapi()))"
    document = json.loads(subprocess.check_output([python, "-c", code], cwd=ROOT, text=True))
    sections: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            text = operation.get("description", "").partition("\n\n")[0]
            line = f"**`{method.upper()} {path}`** {operation['summary']}. {' '.join(text.split())}"
            sections[operation["tags"][0]].append(line)
    parts = [head]
    for tag in document["tags"]:
        parts += [f"## {tag['name']}", tag["description"], *sections[tag["name"]]]
    return GUIDE.sub(r"](\1.md", "\n\n".join(parts))


def _example(found: re.Match[str]) -> str:
    path = ROOT / "docs" / found[1]
    fence = f'``` {LANGUAGES[path.suffix]} title="docs/{found[1]}"'
    return f"{fence}\n{path.read_text('utf-8').rstrip()}\n```"


def _link(found: re.Match[str], folder: str, uri: str) -> str:
    """A link to another page, from this one; the path of any other file."""
    text, path, anchor = found[1], normpath(join(folder, found[2])), found[3] or ""
    page = TOP.get(path) or path.removeprefix("docs/")
    if path in TOP or (path.startswith("docs/") and path.endswith(".md")):
        shown = FILE_NAME.sub(r"\1", text)
        return f"[{shown}]({relpath(page, dirname(uri))}{anchor})"
    name = text.strip("`").rstrip("/")
    return f"`{path}`" if path.endswith(name) else f"{text} (`{path}`)"


def on_post_page(output: str, config: Any, page: Any) -> str:
    return _without_inline_scripts(output, config, "../" * page.url.count("/") or "./")


def on_post_template(output: str, config: Any, template_name: str) -> str:
    if template_name != "404.html":
        return output
    return _without_inline_scripts(output, config, config.site_url)


def _without_inline_scripts(html: str, config: Any, base: str) -> str:
    """The theme's scripts as files, so that the pages may forbid all others."""

    def moved(found: re.Match[str]) -> str:
        name = f"assets/inline/{hashlib.sha256(found[1].encode()).hexdigest()[:12]}.js"
        path = Path(config.site_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found[1], "utf-8")
        return f'<script src="{base}{name}"></script>'

    return SCRIPT.sub(moved, html)


def on_post_build(config: Any) -> None:
    # A third of the site: maps for crawlers, which lack the service's address, and for debuggers.
    site = Path(config.site_dir)
    for path in [*site.glob("sitemap.xml*"), *site.rglob("*.map")]:
        path.unlink()
