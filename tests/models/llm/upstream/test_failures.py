"""Services that refuse, break, flood or hang: clear errors, retries, and the circuit breaker."""

import asyncio
import gzip
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from models.errors import (
    ContextLengthExceeded,
    EngineError,
    EngineLost,
    EngineOverloaded,
    InvalidEngineRequest,
)
from models.llm import upstream as module
from models.llm.base import GenerationDelta
from models.runtimes import upstream as service
from models.runtimes.upstream import FAILURES, OPEN_S, CircuitBreaker
from models.weights.store import WeightStore
from tests.models.llm.upstream.raw_upstream import (
    DONE,
    HELLO,
    KEY,
    Answer,
    ask,
    collect,
    engine_of,
    event,
    head,
    refuses,
    says,
    upstream,
    usage,
    whole,
)
from tests.pipelines.webhooks.receivers import Authority

FLOOD = 300_000  # bytes, more than an answer may have here


async def failure(
    weights: WeightStore, *answers: Answer, **options: Any
) -> tuple[EngineError, int]:
    """The error of a request, and how often it was sent."""
    async with upstream(*answers) as served:
        with pytest.raises(EngineError) as caught:
            await collect(engine_of(served.url, weights, **options), ask())
    return caught.value, len(served.bodies)


async def test_a_model_that_the_service_lacks_is_named_in_the_log(
    weights: WeightStore, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"error": {"message": f"model 'far:3b' not found; {KEY}"}}
    error, _ = await failure(weights, refuses(404, body), key_env="FAR_KEY")
    assert str(error) == "the service behind svc/far does not have the model, or the path (404)"
    (record,) = [one for one in caplog.records if one.getMessage() == "upstream_failed"][:1]
    assert vars(record)["detail"] == "model 'far:3b' not found; …"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_the_service_refuses_is_no_fault_of_our_caller(
    weights: WeightStore, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    error, _ = await failure(weights, refuses(status, body), key_env="FAR_KEY")
    assert isinstance(error, EngineLost) and error.code == "unavailable"
    assert str(error) == f"the service behind svc/far denies access to this service ({status})"
    assert KEY not in caplog.text
    assert any(record.getMessage() == "upstream_failed" for record in caplog.records)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(weights: WeightStore, status: int) -> None:
    async with upstream(says(*HELLO, DONE)) as other:
        error, _ = await failure(weights, refuses(status, Location=f"{other.url}/chat/completions"))
    assert isinstance(error, EngineLost) and not other.bodies


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "too many", "code": "context_length_exceeded"}},
        {"object": "error", "message": "This model's maximum context length is 4096 tokens."},
        {"message": "The input (90 tokens) is longer than the model's context length (80 tokens)."},
        {"error": {"code": 400, "type": "exceed_context_size_error", "message": "exceeds"}},
        {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}},
        {"error": {"message": "Please reduce the length of the messages or completion."}},
        {"success": False, "error": "context_length_exceeded", "message": "no"},
    ],
)
async def test_a_too_long_prompt_is_the_error_of_any_model(
    weights: WeightStore, body: dict[str, Any]
) -> None:
    error, times = await failure(weights, refuses(400, body))
    assert isinstance(error, ContextLengthExceeded) and times == 1
    assert str(error) == "the messages do not fit the context of 1000 tokens"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "temperature:\n must be 1"}}, "temperature: must be 1"),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, "[{'loc': ['body'], 'msg': 'no'}]"),
        ({"success": False, "error": "validation_error", "message": "no"}, "no"),
        ("plain words", "plain words"),
        ("[1]", "[1]"),
        ("", "it does not say why"),
        ({"error": {"message": f"{KEY} x" + "y" * 9999}}, "… x" + "y" * 297),
    ],
)
async def test_another_refusal_of_the_request_is_passed_on_in_one_line(
    weights: WeightStore, body: Any, said: str
) -> None:
    error, times = await failure(weights, refuses(400, body), key_env="FAR_KEY")
    assert type(error) is InvalidEngineRequest and error.code == "validation_error"
    assert str(error) == f"the model refuses the request: {said}"
    assert times == 1


async def test_a_busy_service_is_asked_again_when_it_says_not_when(weights: WeightStore) -> None:
    async with upstream(refuses(429), refuses(503), says(*HELLO, usage(3, 2), DONE)) as served:
        assert (await whole(engine_of(served.url, weights), ask())).text == "Hello"
    assert len(served.bodies) == 3
    error, times = await failure(weights, refuses(429))
    assert isinstance(error, EngineOverloaded) and error.code == "overloaded" and times == 3


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("99999", 3600.0), ("0.5", 0.5)])
async def test_a_service_that_says_when_is_not_asked_before(
    weights: WeightStore, header: str, seconds: float
) -> None:
    error, times = await failure(weights, refuses(429, Retry_After=header))
    assert isinstance(error, EngineOverloaded) and error.retry_after_s == seconds and times == 1


@pytest.mark.parametrize("status", [500, 502, 504, 408])
async def test_a_service_that_fails_is_unavailable(weights: WeightStore, status: int) -> None:
    error, times = await failure(weights, refuses(status, "<html>a page</html>"))
    assert isinstance(error, EngineLost) and times == 3
    assert str(error) == f"the service behind svc/far failed ({status})"


async def test_a_service_that_is_not_there_is_unavailable(weights: WeightStore) -> None:
    async with upstream(says()) as served:
        pass  # its port is closed now
    with pytest.raises(EngineLost, match=r"cannot be reached \(ConnectError\)"):
        await collect(engine_of(served.url, weights), ask())


def raw(*pieces: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return answer


def error_event(**error: Any) -> bytes:
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"


CHUNKED = head(200, Transfer_Encoding="chunked")
HOSTILE: dict[str, Answer] = {
    "garbage in place of HTTP": raw(b"\0" * 99),
    "nothing": raw(),
    "an endless header": raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000),
    "no events": says(b"{}"),
    "garbage in an event": says(b"data: \xff\xfe{]\n\n"),
    "an event of another form": says(b'data: {"choices": [{"delta": "Hello"}]}\n\n'),
    "a usage below zero": says(HELLO[0], usage(-1, 5), DONE),
    "an endless line": says(b"data: " + b"x" * (FLOOD // 2 - 10_000) + b"\n\n"),
    "an endless line without an end": says(*[b"x" * 20_000] * 6),
    "endless comments": says(*[b": alive\n\n" * 1000] * (FLOOD // 9000)),
    "endless empty pieces": says(*[event({"content": ""}) * 100] * (FLOOD // 7000)),
    "a call without a name": says(event({"tool_calls": [{"function": {"arguments": "{}"}}]})),
    "an error in the stream": says(HELLO[0], error_event(message="CUDA out of memory")),
    "a broken chunk": raw(CHUNKED, b"5\r\ndata", b""),
    "a compressed bomb": raw(head(200, Content_Encoding="gzip"), gzip.compress(bytes(9_000_000))),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_service_that_makes_no_sense_is_unavailable(
    weights: WeightStore, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(module, "MOST_ANSWER", FLOOD // 2)
    monkeypatch.setattr(module, "MOST_PER_TOKEN", 0)
    monkeypatch.setattr(module, "MOST_LINE", FLOOD // 3)
    error, times = await failure(weights, answer)
    assert isinstance(error, EngineLost) and times == 3
    assert str(error).startswith(("the service behind svc/far ", "the model calls a tool without"))


async def test_an_error_in_the_stream_may_be_of_a_long_prompt(weights: WeightStore) -> None:
    error, _ = await failure(weights, says(error_event(message="exceeds the context size")))
    assert isinstance(error, ContextLengthExceeded)


@pytest.mark.parametrize(
    "answer",
    [
        says(*HELLO[:2]),
        says(*HELLO[:2], b"data: {"),
        says(*HELLO[:2], error_event(message="lost")),
        raw(CHUNKED, b"%x\r\n" % len(HELLO[1]) + HELLO[1] + b"\r\n", b"99\r\n"),
        says(*HELLO[:2], stays=True),
    ],
    ids=["it ends", "half an event", "an error", "a broken chunk", "it hangs"],
)
async def test_an_answer_that_breaks_in_the_middle_is_not_begun_again(
    weights: WeightStore, answer: Answer
) -> None:
    seen: list[GenerationDelta] = []
    async with upstream(answer) as served:
        with pytest.raises(EngineLost):
            async for delta in engine_of(served.url, weights, idle_s=0.2).generate(ask()):
                seen.append(delta)
    assert [delta.text for delta in seen] == ["Hel"] and len(served.bodies) == 1


@pytest.mark.parametrize(
    "events",
    [HELLO, (*HELLO, b"data: {"), (*HELLO[:3], DONE)],
    ids=["no mark of the end", "half a usage", "no reason"],
)
async def test_an_answer_that_is_whole_stands_although_its_end_is_not(
    weights: WeightStore, events: tuple[bytes, ...]
) -> None:
    async with upstream(says(*events)) as served:
        answer = await whole(engine_of(served.url, weights), ask())
    assert (answer.text, answer.finish_reason) == ("Hello", "stop")
    assert answer.usage is not None and answer.usage.completion_tokens == 2


async def test_a_service_that_hangs_is_given_up(weights: WeightStore) -> None:
    alive = says(*[b": alive\n\n"] * 3, stays=True)
    error, times = await failure(weights, alive, first_token_s=0.4)
    assert isinstance(error, EngineLost) and times == 3
    assert "has sent nothing for 0 s" in str(error)


async def test_after_several_failures_the_service_is_left_alone_for_a_while(
    weights: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "OPEN_S", 0.3)
    async with upstream(*[refuses(500)] * (FAILURES + 1), says(*HELLO, DONE)) as served:
        engine = engine_of(served.url, weights)
        for _ in range(2):
            with pytest.raises(EngineLost):
                await collect(engine, ask())
        assert len(served.bodies) == FAILURES
        with pytest.raises(EngineLost, match="is not working") as caught:
            await collect(engine, ask())
        assert caught.value.retry_after_s is not None and caught.value.retry_after_s <= 0.3
        assert len(served.bodies) == FAILURES
        await asyncio.sleep(0.35)
        with pytest.raises(EngineLost):  # one call tries, and fails
            await collect(engine, ask())
        assert len(served.bodies) == FAILURES + 1
        await asyncio.sleep(0.35)
        assert (await whole(engine, ask())).text == "Hello"
        assert (await whole(engine, ask())).text == "Hello"


def test_while_one_call_tries_the_others_are_refused() -> None:
    now = 100.0
    circuit = CircuitBreaker("svc/far", lambda: now)
    for _ in range(FAILURES):
        circuit.check()
        circuit.note(failed=True)
    now += OPEN_S
    circuit.check()  # it tries
    with pytest.raises(EngineLost) as caught:
        circuit.check()
    assert caught.value.retry_after_s == OPEN_S
    circuit.note(failed=False)
    circuit.check()


def test_an_error_keeps_its_time_between_processes() -> None:
    error = pickle.loads(pickle.dumps(EngineLost("it is down").with_retry_after(7.5)))
    assert (str(error), error.retry_after_s) == ("it is down", 7.5)


async def test_a_wrong_request_does_not_open_the_circuit(weights: WeightStore) -> None:
    async with upstream(refuses(400, "no")) as served:
        engine = engine_of(served.url, weights)
        for _ in range(FAILURES + 1):
            with pytest.raises(InvalidEngineRequest):
                await collect(engine, ask())


async def test_its_certificate_is_verified(weights: WeightStore, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    async with upstream(says(*HELLO, DONE), tls=authority.tls("127.0.0.1")) as served:
        engine = engine_of(served.url, weights, ca_file=authority.ca_file)
        assert (await whole(engine, ask())).text == "Hello"
        with pytest.raises(EngineLost, match="cannot be reached"):
            await collect(engine_of(served.url, weights), ask())
