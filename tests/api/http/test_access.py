"""Which credential opens which route and socket: docs/security.md has the table, and the service
answers as the table says."""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Message

from api.app import routed_app
from api.assemblyai.streams import ASSEMBLYAI_ERRORS
from api.cartesia.routes import CARTESIA_ERRORS
from api.deepgram.options import DEEPGRAM_ERRORS
from api.elevenlabs.options import ELEVENLABS_ERRORS
from api.http.errors import OPENAI_PREFIX
from api.services import Services
from api.wyoming.bridge import WyomingBridge
from configs.settings import Settings
from pipelines.accounts.authentication import ALL_SCOPES, SCOPES
from tests.api.local_server import OPERATOR_TOKEN, local_settings
from tests.openapi import document
from tests.plans import raise_plans
from tools.access_table import BEGIN, COLUMNS, END, OPEN, PAGE, Wants, table, wanted, written

Headers = dict[str, str]
UUID_MADE_UP = "11111111-2222-4333-8444-555555555555"
REFUSED = {401: "unauthorized", 403: "insufficient_scope"}
ENDS_CREDENTIALS = {
    ("POST", "/auth/logout"),
    ("DELETE", "/auth/sessions"),
    ("DELETE", "/auth/account"),
}
EVERY_SCOPE = {("DELETE", "/auth/account")}
KEYS_CANNOT = {("POST", "/auth/logout")}
"""Only a session token ends its session."""

INK = "model=ink-2&encoding=pcm_s16le&sample_rate=16000"
SOCKET_QUERIES = {
    "/v3/ws": "sample_rate=16000",
    "/v2/listen": "model=flux-general-en",
    "/v2/speak": "model=flux-alexis-en",
    "/cartesia/stt/websocket": INK,
    "/cartesia/stt/turns/websocket": INK,
    "/stt/websocket": INK,
}


@dataclass(frozen=True)
class Credential:
    """A kind of credential, with the scopes that it names."""

    name: str
    kind: str  # none, key, session, visitor, secret or operator
    value: str
    scopes: frozenset[str] = frozenset()

    @property
    def headers(self) -> Headers:
        return {"Authorization": f"Bearer {self.value}"} if self.value else {}

    def expected(self, wants: Wants) -> str:
        """The cell of the table."""
        column = {"session": "within", "key": "within"}.get(self.kind, self.kind)
        lacks_scopes = not set(wants.scopes) <= self.scopes
        if lacks_scopes and self.kind == "key":
            column = "without"
        if lacks_scopes and self.kind == "visitor":
            return "403" if wants.kind in ("key", "socket") else cell(wants, "none")
        return cell(wants, column)


def rows_of_page() -> dict[str, dict[str, str]]:
    """The cells of the table as the page shows them, by the label of the row and the column."""
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines = [line.strip("| ").split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    return {label: dict(zip(COLUMNS, cells, strict=True)) for label, *cells in lines[1:]}


ROWS = rows_of_page()


def cell(wants: Wants, column: str) -> str:
    return ROWS[wants.label][column]


def test_the_page_shows_every_route_and_socket_as_declared() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run `make access`"
    declared = {(method, path) for method, path, _ in wanted(routed_app().routes)}
    in_document = {
        (method.upper(), path)
        for path, methods in document()["paths"].items()
        for method in methods
    }
    assert in_document <= declared
    assert "/mcp" in table() and "WYOMING_PORT" in table()


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    return local_settings(tmp_path, OPERATOR_TOKEN)


@pytest.fixture
async def credentials(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    settings: Settings,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> list[Credential]:
    """Every kind of credential; browser tokens by each route that makes them."""
    raise_plans(settings.database_url)
    limits = services.platform.request_limits.admission
    monkeypatch.setitem(limits.__dict__, "unknown_keys_per_minute", 1_000_000)
    monkeypatch.setitem(limits.__dict__, "webhook_sends_per_minute", 1_000_000)

    async def post(path: str, body: Any, headers: Headers = auth) -> dict[str, Any]:
        answer = await client.post(path, headers=headers, json=body)
        assert answer.status_code in (200, 201), answer.text
        return cast(dict[str, Any], answer.json())

    async def key(*scopes: str, headers: Headers = auth) -> str:
        body = {"name": "key", "scopes": list(scopes)}
        return cast(str, (await post("/developer/api", body, headers))["key"])

    login = {"email": "owner@example.com", "password": "a password of the owner"}
    session = (await post("/auth/signup", login, {}))["token"]
    raise_plans(settings.database_url)
    grant = (await post("/v1/auth/grant", {"ttl_seconds": 3600}))["access_token"]
    both = {"grants": {"tts": True, "stt": True}, "expires_in": 3600}
    cartesia = (await post("/cartesia/access-token", both))["token"]
    answer = await client.get("/v3/token?expires_in_seconds=600", headers=auth)
    secret = (await post("/openai/v1/realtime/client_secrets", {}))["value"]
    visitors = [("Deepgram's", grant), ("Cartesia's", cartesia)]
    speech = frozenset({"tts", "stt"})
    every = await key(*SCOPES)
    foreign = await key(*SCOPES, headers=other_auth)
    tokens = {
        scope: (await post("/auth/tokens", {"scopes": [scope], "expires_in": 3600}))["token"]
        for scope in ("tts", "stt", "chat", "voices")
    }
    models = ["tts", "stt", "chat"]
    tokens["models"] = (await post("/auth/tokens", {"scopes": models}))["token"]
    return [
        Credential("no credential", "none", ""),
        Credential("key of every scope", "key", every, ALL_SCOPES),
        Credential("key of another workspace", "key", foreign, ALL_SCOPES),
        Credential("session token", "session", session, ALL_SCOPES),
        *[Credential(f"key of {one}", "key", await key(one), frozenset({one})) for one in SCOPES],
        *[Credential(f"{name} token", "visitor", value, speech) for name, value in visitors],
        Credential("AssemblyAI's token", "visitor", answer.json()["token"], frozenset({"stt"})),
        *[
            Credential(f"browser token of {one}", "visitor", value, frozenset({one}))
            for one, value in tokens.items()
            if one != "models"
        ],
        Credential("browser token of models", "visitor", tokens["models"], frozenset(models)),
        Credential("client secret", "secret", secret, frozenset(models)),
        Credential("token of the operator", "operator", OPERATOR_TOKEN),
    ]


def cases(app: FastAPI) -> list[tuple[str, str, Wants]]:
    """Every route and socket, without pages; what ends credentials is tried by its own test."""
    return [
        (method, path, wants)
        for method, path, wants in wanted(app.routes)
        if wants.kind != "page" and (method, path) not in ENDS_CREDENTIALS
    ]


def filled(path: str) -> str:
    """The path with ids that nothing has."""
    named = {"number": "1", "key_id": "7", "workspace_id": "7", "project_id": "7", "path": "x"}
    return re.sub(r"{(\w+)(?::\w+)?}", lambda match: named.get(match[1], UUID_MADE_UP), path)


async def answer_of(
    client: httpx.AsyncClient, method: str, path: str, credential: Credential
) -> tuple[str, httpx.Response]:
    """`yes`, or the status of the refusal. The body, a list, is wrong for every route."""
    body = {"content": b"[]", "headers": {"Content-Type": "application/json"}}
    sent: dict[str, Any] = body if method in ("POST", "PUT", "PATCH") else {"headers": {}}
    headers = {**sent.pop("headers"), **credential.headers}
    answer = await client.request(method, filled(path), headers=headers, **sent)
    code = REFUSED.get(answer.status_code)
    is_refusal = code is not None and code in answer.text
    assert answer.status_code in (503, *range(200, 500)), (method, path, answer.text)
    return (str(answer.status_code) if is_refusal else OPEN), answer


async def handshake(app: ASGIApp, path: str, query: str, headers: Headers) -> str:
    """`yes` for a socket that stays open, or the status of its refusal."""
    waiting: list[Message] = [{"type": "websocket.connect"}]
    waiting.append({"type": "websocket.disconnect", "code": 1001})
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "websocket.disconnect", "code": 1001}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": [],
        "client": ("127.0.0.1", 1),
        "scheme": "ws",
        "extensions": {"websocket.http.response": {}},
    }
    await app(scope, receive, send)
    for message in sent:
        if message["type"] == "websocket.http.response.start":
            return str(message["status"])
        for status, code in REFUSED.items():  # of a socket that was accepted for its first message
            if code in str(message.get("text") or message.get("reason")):
                return str(status)
    return OPEN


@pytest.mark.timeout(600)  # thousands of requests
async def test_each_credential_opens_what_the_table_says(
    app: FastAPI, client: httpx.AsyncClient, credentials: list[Credential]
) -> None:
    differing = []
    for credential in credentials:
        for method, path, wants in cases(app):
            expected = credential.expected(wants)
            if method == "socket":
                query = SOCKET_QUERIES.get(path, "")
                headers = credential.headers
                if "{key}" in path:  # the credential is the last part of the path
                    headers = {}
                    where = path.format(key=credential.value or "none")
                else:
                    where = filled(path)
                given = await handshake(app, where, query, headers)
            else:
                given, answer = await answer_of(client, method, path, credential)
                if given == "403":
                    assert_envelope(path, answer)
            if given != expected:
                differing.append((credential.name, method, path, f"{given}, not {expected}"))
    assert not differing, "\n".join(map(str, differing))


def assert_envelope(path: str, answer: httpx.Response) -> None:
    """The refusal has the project's fields, and those that the clients of the dialect read."""
    body = answer.json()
    if path.startswith(OPENAI_PREFIX):
        assert body["error"]["code"] == "insufficient_scope" and body["error"]["message"], path
        return
    own = {"success": False, "error": "insufficient_scope"}
    dialects = (DEEPGRAM_ERRORS, ELEVENLABS_ERRORS, CARTESIA_ERRORS, ASSEMBLYAI_ERRORS)
    added = [dialect for dialect in dialects if path.startswith(dialect.paths)]
    assert added or path == "/mcp" or own.items() <= body.items(), (path, body)
    assert not added or len(body) > len(own) + 1, (path, body)


@pytest.mark.parametrize(("method", "path"), sorted(ENDS_CREDENTIALS))
async def test_what_ends_credentials_wants_the_scope_keys(
    client: httpx.AsyncClient, credentials: list[Credential], method: str, path: str
) -> None:
    wants = next(
        wants for one, where, wants in wanted(routed_app().routes) if (one, where) == (method, path)
    )
    last = [one for one in credentials if one.kind == "session"]
    foreign = [one for one in credentials if one.name == "key of another workspace"]
    for credential in [one for one in credentials if one not in last + foreign] + foreign + last:
        if (method, path) == ("DELETE", "/auth/account") and credential.kind == "key":
            if credential.scopes == ALL_SCOPES and credential not in foreign:
                continue  # it would end all the others
        expected = credential.expected(wants)
        if credential.kind == "key" and (method, path) in KEYS_CANNOT:
            expected = "403"
        if (method, path) in EVERY_SCOPE and credential.scopes != ALL_SCOPES:
            expected = "401" if credential.kind in ("none", "secret", "operator") else "403"
        given, _ = await answer_of(client, method, path, credential)
        assert given == expected, credential.name


async def test_wyoming_is_served_with_a_key_and_not_with_other_credentials(
    services: Services, credentials: list[Credential]
) -> None:
    row = Wants("socket", ("tts", "stt", "chat"))
    for credential in credentials:
        if credential.kind != "none":
            bridge = WyomingBridge(services, credential.value)
            given = await handshake(bridge._app, "/wyoming", "", credential.headers)
            assert given == credential.expected(row), credential.name


async def test_mcp_shows_and_runs_the_tools_of_the_scopes_alone(
    client: httpx.AsyncClient, credentials: list[Credential]
) -> None:
    tools = {"speak": "tts", "transcribe": "stt", "voices": "tts"}
    accept = {"Accept": "application/json, text/event-stream"}
    for credential in (one for one in credentials if one.kind in ("key", "session")):
        headers = credential.headers | accept
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        listed = (await client.post("/mcp", headers=headers, json=asked)).json()["result"]["tools"]
        expected = {name for name, scope in tools.items() if scope in credential.scopes}
        assert {tool["name"] for tool in listed} == expected, credential.name
        for name in set(tools) - expected:
            params = {"name": name, "arguments": {}}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            answer = await client.post("/mcp", headers=headers, json=call)
            assert "insufficient_scope" in json.dumps(answer.json()), (credential.name, name)
