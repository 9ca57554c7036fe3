"""The OpenAPI document matches the service: schemathesis calls every operation."""

import json
import os
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.meta import CoveragePhaseData, CoverageScenario

# Private. If an update moves it, call what the iteration in `schemathesis.pytest.plugin` calls.
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from api.http.ignored_fields import HEADER
from tests.api.local_server import OPERATOR_TOKEN, Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.native.test_operator_routes import Control
from tests.api.replaced import with_infrastructure, with_request_limits
from tests.openapi import document

# Paths with rules that a schema cannot express: malformed addresses, expiry in the past, bytes
# that are not audio, messages in an invalid order, too many days, decimals, YAML.
RULES_BEYOND_SCHEMA = frozenset(
    {
        "/audio/verify",
        "/auth/profile",
        "/auth/signup",
        "/auth/workspace",
        "/billing/usage",
        "/cartesia/access-token",
        "/cartesia/tts/bytes",
        "/cartesia/tts/sse",
        "/cartesia/voices",
        "/cartesia/voices/clone",
        "/cartesia/voices/{voice_id}",
        "/consent-sentences",
        "/developer/api",
        "/jobs/speech",
        "/jobs/speech/estimate",
        "/jobs/transcriptions",
        "/jobs/{job_id}/parts/{number}",
        "/openai/v1/audio/voice_consents",
        "/openai/v1/audio/voice_consents/{consent_id}",
        "/openai/v1/audio/voices",
        "/openai/v1/completions",
        "/openai/v1/embeddings",
        "/v1/forced-alignment",
        "/v1/pronunciation-dictionaries/{dictionary_id}/add-rules",
        "/v1/pronunciation-dictionaries/{dictionary_id}/set-rules",
        "/v1/voices/add",
        "/v1/voices/{voice_id}/edit",
        "/v2/transcript",
        "/openai/v1/realtime/calls",
        "/openai/v1/responses/input_tokens",
        "/operator/deploy",
        "/operator/workspaces/{workspace_id}/credit",
        "/speakers",
        "/stt",
        "/tts-stream",
        "/tts-synthesize",
        "/tts/v1/voice",
        "/tts/v1/voice:stream",
        "/tts/v1/voices",
        "/voices",
        "/voice-imports",
        "/voices/{voice_id}",
        "/voices/{voice_id}/shares",
        "/v1/chat/completions",
        "/v1/listen",
        "/v1/pronunciation-dictionaries/add-from-file",
        "/v1/pronunciation-dictionaries/add-from-rules",
        "/v1/speak",
        "/v2/speak",
        # JSON in a field of a form: only its media type is obeyed, not its schema.
        "/v1/speech-to-speech/{voice_id}",
        "/v1/speech-to-speech/{voice_id}/stream",
        "/v1/speech-to-text",
        "/v1/text-to-speech/{voice_id}",
        "/v1/text-to-speech/{voice_id}/stream",
        "/v1/text-to-speech/{voice_id}/stream/with-timestamps",
        "/v1/text-to-speech/{voice_id}/with-timestamps",
        "/v1/voice-changer/{voice_id}",
        "/v1/voice-changer/{voice_id}/stream",
        "/webhooks",
        "/webhooks/{webhook_id}",
        "/openai/v1/audio/speech",
        "/pronunciations",
        "/pronunciations/{dictionary_id}",
        "/tts/explain",
        "/openai/v1/audio/transcriptions",
        "/openai/v1/audio/translations",
        "/openai/v1/chat/completions",
        "/openai/v1/responses",
        "/openai/v1/batches",
        "/openai/v1/files",
        "/openai/v1/realtime/client_secrets",
    }
)

# A form has only strings: `0` is a boolean there, and any text is one in UTF-8.
FORMS = frozenset({"/jobs/speech", "/jobs/transcriptions", "/v1/speech-to-text"})
FORMS |= {"/jobs/speech/estimate"}
# An empty list of parts is an empty text, a number is a day, and a text of a query is a list of it.
LENIENT = frozenset({"/openai/v1/responses/input_tokens", "/v2/transcript", "/v2/voices"})


@schemathesis.serializer("application/sdp")
def as_sdp(context: Any, value: Any) -> bytes:
    return str(value).encode()


FEW = 5
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", FEW))  # requests to each operation

DOCUMENT = document()
# Erasing the account would revoke the key of the operations after it.
OPERATIONS = [
    (method, path)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    if path != "/auth/account"
]


async def test_the_document_is_served(client: httpx.AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json() == DOCUMENT


def test_every_reference_leads_to_a_part_of_the_document() -> None:
    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(reference := part.get("$ref"), str):
                yield reference
            part = list(part.values())
        if isinstance(part, list):
            for item in part:
                yield from references(item)

    found = set(references(DOCUMENT))
    assert len(found) > 100
    for reference in found:
        part: Any = DOCUMENT
        for key in reference.removeprefix("#/").split("/"):
            part = part[key.replace("~1", "/").replace("~0", "~")]
        assert isinstance(part, dict), reference


def test_every_operation_documents_its_errors_with_our_envelope() -> None:
    assert DOCUMENT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            assert "422" not in responses, (method, path)
            for status in ("400", "500", "503"):
                schema = responses[status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (method, path)
            is_public = operation.get("security") == []
            assert is_public or "401" in responses, (method, path)


def test_the_header_of_ignored_fields_and_its_strict_form_are_described() -> None:
    description = DOCUMENT["info"]["description"]
    assert f"`{HEADER}`" in description and "`Prefer: handling=strict`" in description


def test_only_listed_operations_are_public() -> None:
    public = {
        path
        for path, operations in DOCUMENT["paths"].items()
        for operation in operations.values()
        if operation.get("security") == []
    }
    signed = {"/files/{file_id}", "/reports/{file_id}"}
    signed |= {"/billing/confirmations"}  # by the operator's payment system
    entrances = {"/auth/signup", "/auth/login", "/auth/link"}
    assert public == {"/healthz", "/readyz", *entrances, *signed}


def test_idempotent_operations_document_the_conflict_status() -> None:
    paths = DOCUMENT["paths"]
    assert "409" in paths["/tts-synthesize"]["post"]["responses"]
    assert "409" not in paths["/auth/login"]["post"]["responses"]
    assert "409" not in paths["/plans"]["get"]["responses"]


def takes_null(schema: Any, field: str) -> bool:
    kinds = schema["properties"][field].get("anyOf", ())
    return {"type": "null"} in kinds and field not in schema.get("required", ())


def test_an_option_of_a_body_may_be_null() -> None:
    schemas: dict[str, Any] = {}

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in schemas:
                schemas[name] = DOCUMENT["components"]["schemas"][name]
                collect(schemas[name])
        for inner in part.values() if isinstance(part, dict) else part:
            if isinstance(inner, dict | list):
                collect(inner)

    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            collect(content.get("application/json", {}))
    refused = {
        name
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if field not in schema.get("required", ()) and not takes_null(schema, field)
        if described.keys() & {"type", "$ref", "anyOf"} and described.get("type") != "null"
    }
    # A change of null is ambiguous, and a text or its script is required.
    texts = {"SynthesisBody", "StreamBody", "ExplainBody"}
    assert refused == {"ChangedWebhook", "Pronunciation", *texts}


async def test_each_json_body_has_an_example_that_may_have_null_options(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    strict = {**auth, "Prefer": "handling=strict"}
    answers = {}
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
                schema = DOCUMENT["components"]["schemas"][name]
                (example,) = schema["examples"]
                options = {field for field in schema["properties"] if takes_null(schema, field)}
                body = dict.fromkeys(options) | example
                answer = await client.request(
                    method, path.replace("{webhook_id}", "1"), json=body, headers=strict
                )
                answers[path] = answer
    errors = {path: one.json()["error"] for path, one in answers.items() if one.is_error}
    refused = {path: e["code"] if isinstance(e, dict) else e for path, e in errors.items()}
    assert refused == {
        "/tts/v1/voice": "voice_not_found",  # of the models of serve_config.yaml
        "/tts/v1/voice:stream": "voice_not_found",
        "/billing/confirmations": "not_found",  # no payment system is set
        "/auth/link": "not_found",  # the service is not alone on its machine
        "/openai/v1/batches": "not_found",  # the file
        "/auth/password": "insufficient_scope",  # of an API key, not of a login
        "/webhooks/{webhook_id}": "not_found",
        **{path: "not_found" for path in answers if path.startswith("/operator/")},  # no token
        **{path: "voice_not_found" for path in answers if path.startswith("/v1/text-to-speech/")},
        "/v1/voices/{voice_id}/settings/edit": "voice_not_found",
        "/cartesia/voices/{voice_id}": "voice_not_found",
        "/openai/v1/audio/voice_consents/{consent_id}": "not_found",
        "/pronunciations/{dictionary_id}": "not_found",
        **{path: "not_found" for path in answers if "/{dictionary_id}/" in path},
        "/voices/{voice_id}": "voice_not_found",
        "/voices/{voice_id}/export": "voice_not_found",
        "/voices/{voice_id}/shares": "voice_not_found",
        "/voice-shares": "not_found",
        "/v1/history/download": "not_found",
    }


def test_the_parts_of_the_service_come_before_the_dialects() -> None:
    listed = [tag["name"] for tag in DOCUMENT["tags"]]
    used = {
        tag
        for operations in DOCUMENT["paths"].values()
        for operation in operations.values()
        for tag in operation["tags"]
    }
    assert set(listed) == used
    assert listed[:3] == ["text to speech", "speech to text", "voice agents"]
    are_dialects = [name.endswith("dialect") for name in listed]
    assert are_dialects == sorted(are_dialects)
    assert len(DOCUMENT["info"]["description"]) < 1500


async def test_the_docs_page_loads_nothing_from_other_hosts(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.status_code == 200 and "//" not in page.text.replace("</", "").replace("// ", "")
    assert 'href="/guide"' in page.text and 'href="/console"' in page.text
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "<script>" not in page.text
    sizes = {"swagger-ui-bundle.js": 100_000, "swagger-ui.css": 100_000}
    for name, size in {**sizes, "reference.js": 100, "reference.css": 100}.items():
        assert f"/docs/{name}" in page.text
        file = await client.get(f"/docs/{name}", headers={"Accept-Encoding": "gzip"})
        assert file.headers["content-encoding"] == "gzip" and len(file.content) > size
        whole = await client.get(f"/docs/{name}", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in whole.headers and whole.content == file.content
        assert file.headers["content-type"] == whole.headers["content-type"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The application over engines without weights, on a real socket."""
    settings = local_settings(tmp_path_factory.mktemp("server"), OPERATOR_TOKEN)
    services = with_infrastructure(local_services(settings), cluster=Control())
    admission = services.platform.request_limits.admission
    more = admission.model_copy(update={"unknown_keys_per_minute": 1_000_000})  # wrong tokens
    with serve_services(with_request_limits(services, admission=more)) as running:
        yield running


@pytest.fixture(scope="module")
def described() -> BaseSchema:
    # The document says once that U+0000 is 400, not of each string.
    refusals = ["400", "401", "403", "404", "405", "406", "409", "414", "415", "429", "5xx"]
    config = SchemathesisConfig.from_dict(
        {
            "generation": {"allow-x00": False},
            "checks": {"negative_data_rejection": {"expected-statuses": refusals}},
        }
    )
    # To make texts of 8000 characters by the pattern of `chapters` takes ten seconds.
    short = json.dumps(DOCUMENT).replace('"maxLength": 8000', '"maxLength": 20')
    return schemathesis.openapi.from_dict(json.loads(short), config=config)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_behaves_as_documented(
    described: BaseSchema, server: Server, method: str, path: str
) -> None:
    request_each(described, method, path, lambda case: call_and_validate(case, server))


def test_each_field_of_a_body_is_varied_or_left_out(
    described: BaseSchema,
) -> None:
    descriptions = set[str]()

    def add(case: Any) -> None:
        descriptions.add(str(case.meta.phase.data.description).split(" value: ")[0])

    request_each(described, "post", "/cartesia/tts/bytes", add)
    schema = DOCUMENT["components"]["schemas"]["CartesiaText"]
    assert {f"Missing required property: {name}" for name in schema["required"]} <= descriptions
    assert {f"Object with valid '{name}'" for name in schema["properties"]} <= descriptions


def request_each(
    described: BaseSchema, method: str, path: str, call: Callable[[Any], object]
) -> None:
    """Call with each generated request to an operation that is no repetition."""
    tried = set[Hashable]()

    def call_new(case: Any) -> None:
        if not is_repetition(case, tried):
            call(case)

    # As `described.parametrize()`, which makes the requests of all operations, in seconds, in each
    # process that collects tests.
    build_operation_test(
        config=described.config,
        operation=described[path][method],
        test_func=call_new,
        given_kwargs={},
        feedback=FeedbackSources(),
        explicit_settings=settings(
            max_examples=EXAMPLES,
            derandomize=EXAMPLES == FEW,  # the same requests in every run, except in a long one
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )()


def is_repetition(case: Any, tried: set[Hashable]) -> bool:
    """Whether a request differs from one of those `tried` only in its value for the same rule of
    the same field, or is another method that the path does not have."""
    phase = case.meta.phase.data if case.meta else None
    if EXAMPLES > FEW or case.meta is None or not isinstance(phase, CoveragePhaseData):
        return False
    # Only the description names the field of a body that is valid, or is missing.
    is_of_method = phase.scenario == CoverageScenario.UNSPECIFIED_HTTP_METHOD
    about = "" if is_of_method else phase.description
    rule = (case.meta.generation.mode, phase.scenario, phase.parameter, phase.location, about)
    repeats = rule in tried
    tried.add(rule)
    return repeats


def call_and_validate(case: Any, server: Server) -> None:
    body = case.body
    for name in ("text", "input", "transcript") if isinstance(body, dict) else ():
        if isinstance(body.get(name), str) and len(body[name]) <= 5000:
            body[name] = body[name][:40]  # minutes of speech would only be slow
    excluded = [positive_data_acceptance] if case.path in RULES_BEYOND_SCHEMA else []
    ignored = set(case.query or ()) - {
        known.name for known in case.operation.query
    }  # told in HEADER
    excluded += [negative_data_rejection] if ignored or case.path in FORMS | LENIENT else []
    of_operator = case.path.startswith("/operator/")
    case.call_and_validate(
        base_url=server.url,
        headers={"Authorization": f"Bearer {OPERATOR_TOKEN if of_operator else server.key}"},
        excluded_checks=excluded,
        timeout=60,
    )
