"""Writes the table of docs/security.md that says which credential opens which route and socket.

`make access` runs it. The table is made from the declarations of routers and sockets. Tests compare
it with the page, and with the service's answers to each kind of credential.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from api.app import routed_app
from api.http.routing import OperatorRoute, StrictRoute
from api.sockets.kernel.routes import SocketRoute

PAGE = Path(__file__).resolve().parent.parent / "docs" / "security.md"
BEGIN = "<!-- written by tools/access_table.py -->\n"
END = "<!-- end of the written table -->\n"
UNKNOWN_SOCKETS = "/{path:path}"
OPEN = "yes"
COLUMNS = {
    "none": "no credential",
    "within": "API key or session token with the scopes",
    "without": "API key that lacks a scope",
    "visitor": "browser token with the scopes",
    "secret": "client secret",
    "operator": "`OPERATOR_TOKEN`",
}


@dataclass(frozen=True, slots=True, order=True)
class Wants:
    """The credential that a route or socket requires."""

    kind: str  # page, public, operator, key or socket
    scopes: tuple[str, ...] = ()
    visitors: bool = False
    secrets: bool = False  # whether client secrets open it

    @property
    def label(self) -> str:
        """The first cell of its row."""
        named = ", ".join(f"`{scope}`" for scope in self.scopes) or "a key with any scope"
        match self.kind:
            case "page":
                return "pages and files without data"
            case "public":
                return "routes without a key"
            case "operator":
                return "routes of the operator"
        noun = "sockets" if self.kind == "socket" else "routes"
        added = (["visitors"] if self.visitors else []) + (["client secrets"] * self.secrets)
        return f"{noun}: {named}" + (f"; also for {' and '.join(added)}" if added else "")

    def answer(self, column: str) -> str:
        """The cell: `yes`, or the status of the refusal."""
        if self.kind in ("page", "public"):
            return OPEN
        if self.kind == "operator":
            return OPEN if column == "operator" else "401"
        match column:
            case "within":
                return OPEN
            case "without":
                return "403" if self.scopes else OPEN
            case "visitor":
                return OPEN if self.visitors else "403"
            case "secret":
                return OPEN if self.secrets else "401"
        return "401"


def wanted(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str, Wants]]:
    """Yields each route's method, path, and required credential."""
    for route in routes:
        if isinstance(route, OperatorRoute):
            wants = Wants("operator")
        elif isinstance(route, StrictRoute):
            kind = "public" if route.public else "key"
            wants = Wants(kind, route.required_scopes, route.visitors, route.takes_secrets)
        elif isinstance(route, WebSocketRoute) and route.path != UNKNOWN_SOCKETS:
            socket: SocketRoute = route.endpoint.keywords["route"]  # type: ignore[attr-defined]
            wants = Wants("socket", socket.scopes, socket.visitors, socket.takes_secrets)
            yield "socket", route.path, wants
            continue
        elif isinstance(route, Route | Mount):
            wants = Wants("page")
        else:
            continue
        for method in sorted(getattr(route, "methods", None) or {"GET"}):
            if not (isinstance(route, Route) and wants.kind == "page" and method == "HEAD"):
                yield method, getattr(route, "path_format", route.path), wants


def table() -> str:
    """The rows, and below them the routes of each."""
    groups: dict[Wants, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for method, path, wants in wanted(routed_app().routes):
        if method not in groups[wants][path]:
            groups[wants][path].append(method)
    groups[Wants("socket", ("tts", "stt", "chat"))]["WYOMING_PORT, with the WYOMING_KEY"] = []
    lines = [
        f"| routes or sockets, and the scopes that they require | {' | '.join(COLUMNS.values())} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for wants in sorted(groups):
        cells = [wants.answer(column) for column in COLUMNS]
        lines.append(f"| {wants.label} | {' | '.join(cells)} |")
    lines += ["", "The routes and sockets of each row:", ""]
    for wants in sorted(groups):
        named = [_named(path, methods) for path, methods in groups[wants].items()]
        lines.append(f"- **{wants.label}**: {', '.join(named)}")
    return "\n".join(lines) + "\n"


def _named(path: str, methods: list[str]) -> str:
    verbs = [method for method in methods if method != "socket"]
    return f"`{' '.join([*verbs, path])}`"


def written(page: str) -> str:
    """The page with an updated table."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv and written(text) != text:
        sys.exit("the table of docs/security.md is out of date: run `make access`")
    PAGE.write_text(written(text), encoding="utf-8")
