"""Every error has its status, its envelope and its headers."""

from collections import defaultdict

import httpx
import pytest
from fastapi import FastAPI

import models.errors
import pipelines.errors
from api.app import create_app
from api.http.errors import STATUS_OF_CODE, ApiError, to_api_error
from api.http.routing import make_router
from api.services import Services
from db.errors import DatabaseError
from models.errors import EngineError
from pipelines.errors import PipelineError
from tests.api.disconnects import send_and_disconnect
from tests.api.in_process import client_of
from tests.openapi import document
from tests.plans import raise_plans


def all_subclasses(base: type[Exception]) -> list[type[Exception]]:
    below = [deep for child in base.__subclasses__() for deep in all_subclasses(child)]
    return [base, *below]


ALL_ERRORS = [
    error
    for base in (EngineError, PipelineError, DatabaseError)
    for error in all_subclasses(base)
    if error.__module__ in (models.errors.__name__, pipelines.errors.__name__, "db.errors")
]


@pytest.mark.parametrize("error", ALL_ERRORS, ids=lambda error: error.__name__)
def test_every_error_class_of_the_lower_layers_has_an_http_status(error: type[Exception]) -> None:
    code = error.code  # type: ignore[attr-defined]
    answer = to_api_error(error("what went wrong"))
    assert answer.status == STATUS_OF_CODE[code]
    assert answer.code == code
    assert (answer.message == "what went wrong") is (code != "internal_error")


@pytest.fixture
def failing(services: Services) -> FastAPI:
    """The application with a route that raises the error named in its path."""
    app = create_app(services)
    router = make_router("errors", public=True)

    @router.get("/fail/{code}")
    async def fail(code: str) -> None:
        if code == "bug":
            raise RuntimeError("secret internals")
        raise ApiError(code, "the reason", param="field")

    app.router.routes.extend(router.routes)
    return app


@pytest.fixture
async def failing_client(failing: FastAPI) -> httpx.AsyncClient:
    return client_of(failing)


@pytest.mark.parametrize("code", STATUS_OF_CODE)
async def test_error_codes_use_the_envelope(failing_client: httpx.AsyncClient, code: str) -> None:
    answer = await failing_client.get(f"/fail/{code}")
    assert answer.status_code == STATUS_OF_CODE[code]
    assert answer.json() == {"success": False, "error": code, "message": "the reason"}
    assert ("WWW-Authenticate" in answer.headers) is (answer.status_code == 401)
    assert ("Retry-After" in answer.headers) is (answer.status_code in (409, 429, 503))
    assert answer.headers["X-Request-Id"]


async def test_a_bug_answers_500_without_its_internals(failing_client: httpx.AsyncClient) -> None:
    answer = await failing_client.get("/fail/bug")
    assert answer.status_code == 500
    assert answer.json()["error"] == "internal_error"
    assert "secret" not in answer.text
    assert answer.headers["X-Request-Id"]


async def test_openai_clients_get_openai_error_shape(failing_client: httpx.AsyncClient) -> None:
    answer = await failing_client.get("/fail/rate_limited", headers={"X-Stainless-Lang": "python"})
    assert answer.json() == {
        "success": False,
        "message": "the reason",
        "error": {
            "message": "the reason",
            "type": "rate_limit_error",
            "code": "rate_limited",
            "param": "field",
        },
    }
    unknown = await failing_client.get("/openai/v1/nothing")
    assert unknown.json()["error"]["code"] == "not_found"


async def test_a_path_of_openai_without_its_prefix_names_the_path_with_it(
    client: httpx.AsyncClient,
) -> None:
    for path in ("/v1/audio/speech", "/v1/embeddings", "/v1/responses/resp_1"):
        answer = await client.post(path)
        assert answer.status_code == 404
        assert answer.json()["message"].endswith(f"OpenAI's API has it at /openai{path}")
    assert (await client.get("/v1/none")).json()["message"] == "this path does not exist"


async def test_unsupported_interfaces_are_404_in_the_shape_of_their_api(
    client: httpx.AsyncClient,
) -> None:
    fields = {
        "/v1/read?summarize=true": "err_msg",
        "/v1/agent/converse": "err_msg",
        "/v1/agent/settings/think/models": "err_msg",
        "/lemur/v3/generate/task": "error",
        "/v2/realtime/token": "error",
        "/cartesia/infill/bytes": "message",
        "/openai/v1/images/generations": "message",
    }
    for path, field in fields.items():
        answer = await client.post(path)
        assert (answer.status_code, answer.json()[field]) == (404, "this path does not exist"), path
    music = await client.post("/v1/music", headers={"xi-api-key": "sk_none"})
    assert music.json()["detail"]["message"] == "this path does not exist"


async def test_a_path_of_the_realtime_beta_names_its_successor(client: httpx.AsyncClient) -> None:
    realtime = "/openai/v1/realtime"
    for path, successor in (
        ("", "calls"),
        ("/sessions", "client_secrets"),
        ("/transcription_sessions", "client_secrets"),
    ):
        answer = await client.post(realtime + path)
        assert answer.status_code == (404 if path else 405)
        assert answer.json()["error"]["message"].endswith(f"with {realtime}/{successor}")
        assert (await client.post(f"{realtime}/{successor}")).status_code == 401


async def test_an_unknown_path_is_404_also_without_a_key(client: httpx.AsyncClient) -> None:
    for path in ("/nothing", "/nothing/", "/developer/", "/Plans"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found"), path


async def test_a_405_answer_lists_the_allowed_methods(client: httpx.AsyncClient) -> None:
    answer = await client.patch("/developer/api")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    for page in ("/console", "/console/js/main.js", "/docs"):
        answer = await client.post(page)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_options_lists_the_allowed_methods(client: httpx.AsyncClient) -> None:
    answer = await client.options("/plans")
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"


async def test_head_answers_as_get_without_the_body(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    head = await client.head("/plans", headers=auth)
    get = await client.get("/plans", headers=auth)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


async def test_a_valid_request_id_is_returned_and_an_invalid_one_is_replaced(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/healthz", headers={"X-Request-Id": "order-66"})
    assert answer.headers["X-Request-Id"] == "order-66"
    for strange in ("", "two words", "x" * 65, 'a"b'):
        answer = await client.get("/healthz", headers={"X-Request-Id": strange})
        assert answer.headers["X-Request-Id"] != strange
        assert len(answer.headers["X-Request-Id"]) == 32


async def test_a_disconnect_during_the_body_is_a_499_without_an_error(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    sent = httpx.Request("POST", "http://test/auth/login", json={"email": "a@example.com"})
    assert await send_and_disconnect(app, sent) == 499
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_the_access_log_has_the_path_without_its_query(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "api.access"):
        await client.get("/plans?apiKey=c4n4ry", headers={"X-Request-Id": "order-66"})
        await client.get("/healthz")  # polled every second: not logged
    (record,) = [one for one in caplog.records if one.name == "api.access"]
    assert vars(record)["path"] == "/plans" and vars(record)["status"] == 401
    assert "c4n4ry" not in str(vars(record))


async def test_unknown_addresses_answer_browsers_with_html_and_programs_with_json(
    client: httpx.AsyncClient,
) -> None:
    for path in ("/nothing", "/console/nothing", "/openai/v1/nothing"):
        page = await client.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.status_code == 404
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for place in ("/console", "/guide", "/docs"):
            assert f'href="{place}"' in page.text
        for accept in ("*/*", "application/json"):
            answer = await client.get(path, headers={"Accept": accept})
            assert (answer.status_code, answer.json()["success"]) == (404, False)


async def test_further_slashes_in_any_path_change_nothing(
    client: httpx.AsyncClient, auth: dict[str, str], services: Services
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    for path, methods in document()["paths"].items():
        for method in methods:
            if path in ("/healthz", "/readyz") or (method, path) == ("delete", "/auth/account"):
                continue
            plain = path.format_map(defaultdict(lambda: "1"))
            answers = [
                await client.request(method, address, headers=auth, json={"name": 0})
                for address in (plain, f"{plain}//", f"http://test{plain.replace('/', '//')}")
            ]
            assert len({one.status_code for one in answers}) == 1, (method, path, answers)
    body = {"messages": [{"role": "user", "content": "hi"}]}
    answer = await client.post("/openai/v1//chat/completions/", headers=auth, json=body)
    assert answer.status_code == 200 and not answer.history


@pytest.mark.parametrize(
    "path", ["/metrics/", "//metrics", "/healthz/", "/readyz//", "/-//healthz"]
)
async def test_probes_that_proxies_block_have_one_address(
    client: httpx.AsyncClient, path: str
) -> None:
    assert (await client.get(f"http://test{path}")).status_code == 404


async def test_a_rule_of_the_whole_body_names_its_field(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True}
    answer = await client.post("/openai/v1/chat/completions", headers=auth, json=body)
    error = answer.json()["error"]
    assert (error["param"], error["message"].partition(":")[0]) == ("logprobs", "logprobs")
