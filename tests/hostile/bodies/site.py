"""The application in process over engines that read as strictly as real ones, and what it may
never answer."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from models.base import ModelInfo
from models.llm.base import GenerationDelta, GenerationRequest
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.ast import WorkBudget
from models.weights.store import WeightStore
from tests.api.http.test_tenants import resources_of
from tests.api.local_server import OPERATOR_TOKEN, local_settings
from tests.api.local_services import local_services
from tests.api.money import books_of
from tests.api.native.test_operator_routes import Control
from tests.api.replaced import with_infrastructure, with_request_limits
from tests.engines.echo import EchoConfig, EchoEngine
from tests.hostile.bodies.samples import Ids
from tests.local_ports import LocalChatModel
from tests.openapi import document
from tests.plans import raise_plans

DOCUMENT = document()
INFO = ModelInfo("svc/echo", "chat", "echo", "us", 0, ("en",), ("svc/slm-3b-int4",))
MUCH = 10**15  # micro-USD
COMPILED_S = 0.3  # of CPU time, after which a schema is refused
ANSWERED_S = 300.0  # a request that takes longer hangs


class StrictChat(EchoEngine):
    """Echoes, and compiles schemas and tools to a grammar first, as the shipped engines do."""

    def __init__(self) -> None:
        fields = {"id": INFO.id, "owned_by": "us", "created": 0, "languages": ("en",)}
        super().__init__(EchoConfig(engine="echo", **fields), WeightStore(Path("unused")))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        if request.tools or request.response_format:
            await asyncio.to_thread(answer_grammar, request, budget=WorkBudget(COMPILED_S))
        async for delta in super().generate(request):
            yield delta


class Failures(logging.Handler):
    """Collects what the service logs as its own failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(logging.Formatter().format(record))


@dataclass
class Site:
    """A service, its first workspace, and one of each thing that this owns."""

    services: Services
    app: FastAPI
    client: httpx.AsyncClient
    key: str
    ids: Ids
    workspace_id: int
    failures: Failures = field(default_factory=Failures)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[Site]:
    """A new service with its data in `folder`."""
    settings = local_settings(folder, OPERATOR_TOKEN)
    built = local_services(settings, chat_models={"echo": LocalChatModel(StrictChat(), INFO)})
    admission = built.platform.request_limits.admission
    more = dict.fromkeys(("unknown_keys_per_minute", "webhook_sends_per_minute"), 1_000_000)
    changed = admission.model_copy(update=more)
    limited = with_request_limits(built, admission=changed)
    services = with_infrastructure(limited, cluster=Control())
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    raise_plans(settings.database_url)
    app = create_app(services)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {key}"}
    books = await books_of(services, headers)
    await books.set_credit(MUCH)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        ids = await resources_of(client, headers, services)
        voices = await services.speech.synthesis.pipeline.directory.voices()
        ids["speaking_voice"] = voices[0].id
        site = Site(services, app, client, key, ids, books.workspace_id)
        logging.getLogger().addHandler(site.failures)
        try:
            yield site
        finally:
            logging.getLogger().removeHandler(site.failures)
            await services.platform.billing.wait_for_settlements()
            services.infrastructure.database.close()


_FIELD = re.compile(r"[A-Za-z_]+(?:[.\[][\w\].]+)*: ")  # that a message begins with
# Of the address, of a body that is no object, of a text without anything to say, of a limit,
# and of the state of what the address names.
WHOLE = (
    *("the address holds", "the body: Input should be", "the body must be one JSON-RPC message"),
    *("text must have a letter", "a workspace has", "the webhook is inactive"),
    "only background responses can be cancelled",
)
_INTERNAL = re.compile(rb'"internal_error|-32603|"server_error"|the service failed')


def complaint(answer: httpx.Response, names: set[str]) -> str:
    """What is wrong with an answer to a body with a broken field on the way `names`; else ""."""
    if answer.status_code >= 500:
        return f"{answer.status_code}: {answer.text[:300]}"
    if _INTERNAL.search(answer.content):
        return f"an internal error in the answer: {answer.text[-500:]}"
    if answer.status_code < 400:
        return ""
    try:
        body = answer.json()
    except ValueError:
        return f"{answer.status_code} without JSON: {answer.text[:200]}"
    if isinstance(body, dict) and "jsonrpc" in body and body["error"].get("message"):
        return ""
    message = body.get("message") if isinstance(body, dict) else None
    if not message or "error" not in body and "detail" not in body and "err_code" not in body:
        return f"{answer.status_code} without the envelope: {body}"
    code = body.get("error")
    code = code.get("code") if isinstance(code, dict) else code
    if message.startswith(WHOLE):
        return ""
    if answer.status_code == 400 and code == "validation_error" and names:
        error = body.get("error")
        param = error.get("param") if isinstance(error, dict) else None
        if not (param or _FIELD.match(message) or any(name in message for name in names)):
            return f"400 that names no field: {message}"
    return ""


async def within_time(work: Any) -> Any:
    async with asyncio.timeout(ANSWERED_S):
        return await work


def shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) < 1500 else f"{text[:700]} … {text[-700:]}"
