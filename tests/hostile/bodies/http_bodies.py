"""Requests to every route, each with one broken field."""

import json
from dataclasses import dataclass
from random import Random
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from api.openai.batches.lines import answer_line
from pipelines.billing.operation import Operation as Paid
from tests.api.local_server import OPERATOR_TOKEN
from tests.hostile.bodies.breakages import break_one, written
from tests.hostile.bodies.samples import batch_line, by_schema, forms
from tests.hostile.bodies.schemas import Filler
from tests.hostile.bodies.site import DOCUMENT, Site, complaint, shown, within_time

SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
# What ends the credential, or hashes a password for a third of a second.
LEFT_OUT = {
    ("delete", "/auth/account"),
    ("post", "/auth/logout"),
    ("delete", "/auth/sessions"),
    ("post", "/auth/login"),
    ("post", "/auth/signup"),
    ("put", "/auth/password"),
    ("put", "/auth/workspace"),  # with which nothing is saved
    ("post", "/voices"),  # each trains a voice
}
DEEP = {
    "JsonRpc": 4,
    "ChatCompletionBody": 10,
    "ResponsesBody": 8,
    "SynthesisBody": 3,
    "ClientSecretBody": 3,
}
LINES = 0.05  # of the bodies are lines of batches


@dataclass(frozen=True)
class Operation:
    """A route of the document."""

    method: str
    path: str
    parameters: list[dict[str, Any]]
    kind: str  # the media type of its body, or ""
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.schema.get("$ref", "")).rpartition("/")[2]


def operations() -> list[Operation]:
    found = []
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            kind = next(iter(content), "")
            schema = content[kind].get("schema", {}) if kind else {}
            if (method, path) not in LEFT_OUT:
                parameters = operation.get("parameters", [])
                found.append(Operation(method, path, parameters, kind, schema))
    mcp = {"$ref": "#/components/schemas/JsonRpc"}  # which the document leaves out
    return [*found, Operation("post", "/mcp", [], "application/json", mcp)]


OPERATIONS = operations()
WEIGHTS = [
    DEEP.get(one.name, 2 if one.kind else 1) * (0.2 if one.method == "delete" else 1)
    for one in OPERATIONS
]


class Requests:
    """Sends requests to one site, and remembers what was wrong with the answers."""

    def __init__(self, site: Site, chance: Random) -> None:
        self._site = site
        self._chance = chance
        voice = site.ids["speaking_voice"]
        references: dict[str, list[Any]] = {
            name.rpartition(".")[2].removesuffix("[]"): [value] for name, value in site.ids.items()
        }
        references |= {
            "voice": [voice, "Alto"],
            "voice_id": [voice, site.ids["voice_id"]],
            "voiceId": [voice],
            "model": ["svc/echo", "tts-1", "whisper-1"],
            "language": ["en"],
            "id": [voice, site.ids["dictionary_id"]],
            "number": [1],
        }
        self._filler = Filler(SCHEMAS, references, chance)
        self._samples = by_schema(site.ids)
        self._forms = forms()
        self.complaints: list[str] = []
        self.label = ""  # of the last request
        self.statuses: dict[int, int] = {}

    async def send_one(self) -> None:
        if self._chance.random() < LINES:
            await self.answer_line()
            return
        operation = self._chance.choices(OPERATIONS, WEIGHTS)[0]
        path, query, names = self._address(operation)
        headers = dict(self._site.headers)
        if self._chance.random() < 0.05:
            headers["Idempotency-Key"] = str(self._chance.randrange(5))
        if self._chance.random() < 0.2:
            headers["X-Stainless-Lang"] = "python"
        sent: dict[str, Any] = {"params": query}
        what: Any = query
        if operation.path.startswith("/operator"):
            headers["Authorization"] = f"Bearer {OPERATOR_TOKEN}"
        if operation.path == "/mcp":
            headers["Accept"] = "application/json, text/event-stream"
        if operation.kind == "application/json":
            broken = break_one(self._body(operation), self._chance)
            text = broken.text
            if self._chance.random() < 0.02:
                text = self._chance.choice([text[:-1], text + "}", "\ufeff" + text, f"[{text}]"])
            sent["content"], names, what = text.encode(), names | broken.names, broken.value
            names |= set(broken.value) if isinstance(broken.value, dict) else set()
            headers["Content-Type"] = "application/json"
        elif operation.kind == "multipart/form-data":
            fields, files, more = self._form(operation)
            sent |= {"data": fields, "files": files}
            names, what = names | more, [fields, files]
        elif operation.kind:
            sent["content"] = self._chance.randbytes(100)
        url = f"http://test{path}"
        call = self._site.client.request(operation.method, url, headers=headers, **sent)
        label = self.label = f"{operation.method} {path} {shown(what)}"
        try:
            answer = await within_time(call)
        except TimeoutError:
            self.complaints.append(f"{label}\n  hangs")
            return
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        if wrong := complaint(answer, names):
            self.complaints.append(f"{label}\n  {wrong}")
        while self._site.failures.messages:
            self.complaints.append(f"{label}\n  logged {self._site.failures.messages.pop()}")

    async def answer_line(self) -> None:
        """A line of a batch, with the body of a chat or a response that is broken."""
        endpoint = self._chance.choice(["/v1/chat/completions", "/v1/responses"])
        name = "ChatCompletionBody" if "chat" in endpoint else "ResponsesBody"
        broken = break_one(self._chance.choice(self._samples[name]), self._chance)
        line = {"custom_id": "1", "method": "POST", "url": endpoint, "body": broken.value}
        if self._chance.random() < 0.1:
            line = break_one(line, self._chance).value
        label = self.label = f"line {shown(line)}"
        payer = Paid(None, token_hex(8))
        chat, workspace_id = self._site.services.chat, self._site.workspace_id
        text = written(line).encode()
        made, _ = await within_time(answer_line(chat, endpoint, text, workspace_id, payer))
        answer = json.loads(made)["response"]
        if answer["status_code"] >= 500:
            self.complaints.append(f"{label}\n  {answer}")
        elif answer["status_code"] == 400 and not answer["body"]["error"]["param"]:
            if answer["body"]["error"]["code"] == "validation_error":
                self.complaints.append(f"{label}\n  400 that names no field: {answer}")
        while self._site.failures.messages:
            self.complaints.append(f"{label}\n  logged {self._site.failures.messages.pop()}")

    def _body(self, operation: Operation) -> Any:
        samples = self._samples.get(operation.name)
        if operation.path == "/mcp" and samples:
            return self._chance.choice(samples)
        filled = self._filler.fill(operation.schema)
        if samples is None or self._chance.random() < 0.2:
            return filled
        body = dict(self._chance.choice(samples))
        for name in filled:
            if self._chance.random() < 0.1:
                body.setdefault(name, filled[name])
        return body

    def _address(self, operation: Operation) -> tuple[str, list[tuple[str, str]], set[str]]:
        """The path and the query, mostly right, and the names of what may be wrong in them."""
        path, query, names = operation.path, [], set[str]()
        for parameter in operation.parameters:
            name = parameter["name"]
            value = self._filler.fill(parameter.get("schema", {}), name)
            if parameter["in"] == "query" and self._chance.random() < 0.6:
                continue
            if self._chance.random() < (0.05 if operation.kind else 0.3):
                value = _as_text(break_one({name: value}, self._chance).value.get(name))
            names.add(name)
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", quote(_as_text(value)[:2000], safe="") or "-")
            else:
                items = value if isinstance(value, list) else [value]
                query += [(name, _as_text(item)[:2000]) for item in items[:50]]
        return path, query, names

    def _form(self, operation: Operation) -> tuple[Any, Any, set[str]]:
        filled = self._filler.fill(operation.schema)
        fields, files = self._forms.get(operation.path, (filled, {}))
        more = {name: _as_text(filled[name]) for name in filled if self._chance.random() < 0.1}
        fields = {**more, **fields}
        for name in files:
            fields.pop(name, None)
        broken = break_one({**fields, **{name: "file" for name in files}}, self._chance)
        sent = []
        for name, value in broken.value.items():
            given = value if isinstance(value, list) and len(value) < 60 else [value]
            for item in given:
                if name in files and item == "file":
                    sent.append((_as_text(name), files[name]))
                else:
                    sent.append((_as_text(name), (None, _as_text(item).encode())))
        if not sent:
            sent.append(("nothing", (None, b"")))
        if files and self._chance.random() < 0.1 and operation.path == "/openai/v1/files":
            line = break_one(self._chance.choice(self._samples["ChatCompletionBody"]), self._chance)
            sent = [("purpose", (None, b"batch")), ("file", ("a.jsonl", batch_line(line.value)))]
        return {}, sent, broken.names | set(fields) | set(files)


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()
