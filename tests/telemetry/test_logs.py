"""Secrets are redacted in log records of any logger, in plain and in JSON format."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import jwt
import pydantic
import pytest

from configs.settings import PROJECT_DIR
from pipelines.accounts.authentication import SECRET_PREFIX, new_api_key
from telemetry.logs import JsonFormatter, RedactedRecord, redact, without_texts
from telemetry.tracing import request_id
from tests.cpu_time import check_cpu_units

KEY = new_api_key()
SECRET = new_api_key(SECRET_PREFIX)
TOKEN = jwt.encode({"sub": "1"}, "t" * 48)
CANARY = "c4n4ry-s3cr3t"
LEAKS = [
    f"GET /ws/tts?apiKey={CANARY}&x=1",
    f"key {KEY} was used",
    f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{SECRET}",
    f"token={TOKEN}",
    f"whsec_{'QUJD' * 8}",
    f"Authorization: Bearer {CANARY}",
    f"{{'authorization': 'Bearer {CANARY}'}}",
    f"(b'authorization', b'Bearer {CANARY}')",
    f'{{"password": "{CANARY}"}}',
    f"password={CANARY}",
    f"postgresql://user:{CANARY}@db/x",
    f"postgresql://user:p@{CANARY}@db/x",
    f"redis://:{CANARY}@cache:6379",
    f"postgres://user:one/{CANARY}@db/x",
    f"postgresql+psycopg://user:{CANARY}/two@db/x",
    f"rediss://:{CANARY}/two@cache:6379",
    f'{{"password": "two words {CANARY}", "x": 1}}',
    f'{{"password": "a \\" quote {CANARY}"}}',
    f"{{'new_password': 'two words {CANARY}'}}",
    json.dumps(json.dumps({"secret": f"two words {CANARY}"})),
    f"x-api-key: {CANARY}",
    f"ANTIPHON_TOKEN_KEY={CANARY}",
    f"ANTIPHON_TOKEN_KEY={'n' * 32},{CANARY} and more",
    f"ANTIPHON_DATA_KEYS={'n' * 32},{CANARY}",
    f"ANTIPHON_KEY_PEPPER: {CANARY} is not what it was",
    f"data_keys: {CANARY} is not what it was",
    f"password={CANARY} is wrong",
    f'{{"data_keys": "{"n" * 32},{CANARY}", "x": 1}}',
]
PRIVATE = "Greta's pin isn't \"1234\"."
SECRETS = (KEY, SECRET, TOKEN, CANARY, "QUJDQUJD")


@pytest.fixture(params=[logging.Formatter(), JsonFormatter()], ids=["plain", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger whose handler writes to memory, in each format."""
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(RedactedRecord)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param)
    logger = logging.getLogger("tests.redaction")
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, stream
    logger.removeHandler(handler)
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize("leak", LEAKS, ids=range(len(LEAKS)))
def test_secrets_are_redacted_in_messages_arguments_and_exceptions(
    log: tuple[logging.Logger, io.StringIO], leak: str
) -> None:
    logger, stream = log
    logger.warning(leak)
    logger.warning("seen: %s", leak)
    try:
        raise ValueError(leak)
    except ValueError:
        logger.exception("failed")
    logger.warning("event", extra={"detail": leak})
    written = stream.getvalue()
    assert "ValueError" in written
    assert [secret for secret in SECRETS if secret in written] == []


class _Answer(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize(
    ("fail", "kept"),
    [
        (lambda: {"": 1}[PRIVATE], "KeyError: "),
        (lambda: _Answer(number=PRIVATE), "Input should be a valid integer"),
        (lambda: jsonschema.validate({"a": PRIVATE}, {"type": "array"}), "is not of type"),
        (lambda: json.loads(PRIVATE), "JSONDecodeError: Expecting value"),
        (lambda: Path("/no/such").read_text(), "No such file or directory: '/no/such'"),
    ],
)
def test_an_error_of_a_library_quotes_no_text_in_logs(
    log: tuple[logging.Logger, io.StringIO], fail: Callable[[], object], kept: str
) -> None:
    logger, stream = log
    try:
        fail()
    except Exception:
        logger.exception("failed")
    written = stream.getvalue()
    assert kept in written and "Greta" not in written
    assert "test_logs.py" in written


def test_text_without_secrets_is_not_redacted() -> None:
    for text in (
        "task_1 is done",
        "GET /developer/api",
        "the password is wrong",
        "sk_short",
        "postgresql://db:5432/x",
        "redis://cache:6379/0",
        "ANTIPHON_KEY_PEPPER, ANTIPHON_DATA_KEYS: not what this database was used with",
        "ANTIPHON_KEY_PEPPER: not what this database was used with",
        "ANTIPHON_TOKEN_KEY: must have 32 characters",
        "OPERATOR_TOKEN: is too short",
        "current_password: is not the password of this account",
        "webhook_secret: after whsec_ must come base64",
        "api_key: has no scope",
    ):
        assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    ["redis://:", "postgres://a:b", "eyJ-", "eyJa.", "secret ", "password: ", "bearer ", "://:a/"],
)
def test_no_address_of_a_stranger_takes_long_to_redact(text: str) -> None:
    """A line is written for each request, also for one of 8 KB without a key."""
    path = "/" + text * (200_000 // len(text))
    # At most 2 are measured; a search that goes on to the end from every place takes 500.
    check_cpu_units(lambda: redact(path), below=20)


def test_a_json_log_line_has_the_request_id_and_the_extra_fields() -> None:
    record = logging.makeLogRecord({"msg": "request", "status": 200, "name": "api.access"})
    token = request_id.set("abc")
    line = json.loads(JsonFormatter().format(record))
    request_id.reset(token)
    assert (line["event"], line["status"], line["request_id"]) == ("request", 200, "abc")
    assert line["time"].endswith("+00:00")


def test_a_redacted_log_line_is_valid_json() -> None:
    body = json.dumps({"password": f'two "words" {CANARY}', "name": "Ada"})
    record = logging.makeLogRecord({"msg": "got %s", "args": (body,), "body": body})
    line = json.loads(JsonFormatter().format(record))
    assert CANARY not in json.dumps(line)
    assert "Ada" in line["event"] and "Ada" in line["body"]


def test_a_traceback_is_readable_where_serve_has_replaced_print(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.serve._private.logging_utils import redirected_print

    monkeypatch.setattr("builtins.print", redirected_print)
    try:
        raise ValueError("the cause")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    written = json.loads(JsonFormatter().format(record))["exception"]
    assert written.splitlines()[0] == "Traceback (most recent call last):"
    assert written.splitlines()[-1] == "ValueError: the cause"


def test_a_replica_also_logs_to_the_file_that_rays_dashboard_shows(tmp_path: Path) -> None:
    """With handlers as Serve makes them in a replica, whose file its own records go to by a
    buffer."""
    program = (
        "import logging, logging.handlers, sys\n"
        "from telemetry.logs import setup_logs\n"
        "file = logging.handlers.RotatingFileHandler(sys.argv[1])\n"
        "buffer = logging.handlers.MemoryHandler(1000, target=file)\n"
        "logging.getLogger('ray.serve').addHandler(buffer)\n"
        "logging.getLogger('ray.serve').propagate = False\n"
        "setup_logs()\n"
        "setup_logs()\n"
        "logging.getLogger('a').info('served', extra={'ms': 2, 'password': sys.argv[2]})\n"
        "logging.getLogger('ray.serve').error('lost password=%s', sys.argv[2])\n"
    )
    file = tmp_path / "replica_models_STT.log"
    command = [sys.executable, "-c", program, str(file), CANARY]
    ended = subprocess.run(command, cwd=PROJECT_DIR, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["logger"], line["event"]) for line in lines] == [
        ("a", "served"),
        ("ray.serve", "lost password=[hidden]"),
    ]
    assert lines[0]["ms"] == 2 and CANARY not in file.read_text()
    assert json.loads(ended.stderr)["event"] == "served"


def test_the_error_of_a_replica_quotes_no_text() -> None:
    error = f'ray::Chat (pid=1)\n  File "/x/engine.py", line 3\nKeyError: {PRIVATE!r}'
    record = logging.makeLogRecord({"msg": "replica_error", "error": error})
    written = json.loads(JsonFormatter().format(record))["error"]
    assert written == 'ray::Chat (pid=1)\n  File "/x/engine.py", line 3\nKeyError: [hidden]'


@pytest.mark.parametrize(
    ("error", "written"),
    [
        ("KeyError: b'Greta'", "KeyError: [hidden]"),
        ("not in 'one Greta\ntwo Greta' here", "not in [hidden] here"),
        ("cannot read 'it's 'quoted' Greta' here", "cannot read [hidden] here"),
        ('no "{"a": "Greta"}" here', "no [hidden] here"),
        ("'the dogs' of Greta.' bark", "[hidden] bark"),
        ("KeyError: 'Greta", "KeyError: [hidden]"),
        (
            'unique "uq"\nDETAIL:  Key (email)=(Greta@x.de) already exists.\nHINT: none',
            "unique [hidden]\nDETAIL:  Key (email)=[hidden]\nHINT: none",
        ),
        ("DETAIL:  Failing row contains (1, Greta\nG).", "DETAIL:  Failing row contains [hidden]"),
        ("KeyError: 'Greta' [Errno 2] no: '/a'", "KeyError: [hidden] [Errno 2] no: '/a'"),
        (
            '  File "/a.py", line 3, in f\n    g("Greta")',
            '  File "/a.py", line 3, in f\n    g([hidden])',
        ),
        *(
            (kept, kept)
            for kept in (
                "'NoneType' object has no attribute 'bar'",
                "TypeError: f() got an unexpected keyword argument 'bar'",
                "No module named 'vllm'",
                'relation "x" does not exist',
                'connection to server at "db.internal", port 5432 failed',
                "[Errno 111] Connect call failed ('127.0.0.1', 8000)",
            )
        ),
        (
            'invalid input syntax for type integer: "Greta"',
            "invalid input syntax for type integer: [hidden]",
        ),
    ],
)
def test_quotations_are_hidden_and_names_in_code_are_not(error: str, written: str) -> None:
    assert without_texts(error) == written
    for field in ("error", "reason", "problem", "cause"):
        record = logging.makeLogRecord({"msg": "failed", field: error})
        assert json.loads(JsonFormatter().format(record))[field] == written


@pytest.mark.parametrize("name", ["asyncio", "ray", "ray.serve"])
def test_messages_of_libraries_that_report_errors_quote_no_text(
    log: tuple[logging.Logger, io.StringIO], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    logger, stream = log
    monkeypatch.setattr(logger, "name", name)
    logger.error("future: <Task finished exception=%r>", KeyError(PRIVATE))
    assert "exception=KeyError([hidden])" in stream.getvalue()
