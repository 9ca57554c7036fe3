"""Responses with the official Python client of OpenAI, unchanged, and with its agents SDK."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.resources.responses.responses import ResponsesConnection
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseInputParam,
    ResponsesServerEvent,
)
from openai.types.shared import ResponsesModel
from pydantic import BaseModel, TypeAdapter

from tests.api.chat_server import ChatServer
from tests.clients.openai_texts import CALL, OBJECT, TEXT, WEATHER
from tests.clients.registry_clients import RegistryClients

HERE = Path(__file__).parent
MODEL = "svc/slm-3b-int4"
TOOL: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}


LEGACY = r"ignore:connect\(\) must be used as a context manager"  # by the client's own code
ResponsesEvent: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


# Of models for one purpose, such as search, law or security.
SPECIAL = "search vision computer cyber rosalind law daybreak".split()


def names(kind: Any) -> Iterator[str]:
    """The names in a union of literals."""
    for part in get_args(kind):
        if isinstance(part, str):
            yield part
        else:
            yield from names(part)


def take(socket: ResponsesConnection) -> Iterator[ResponsesServerEvent]:
    """Reads the events of one response."""
    for event in socket:
        yield event
        if event.type == "response.completed":
            return


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def client(server: ChatServer) -> Iterator[OpenAI]:
    address = f"{server.url}/openai/v1"
    with OpenAI(base_url=address, api_key=server.token, max_retries=0) as opened:
        yield opened


def test_a_response_is_created_read_continued_and_deleted(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input=TEXT, instructions="Be kind.")
    assert first.output_text == TEXT and first.model == "svc/echo"
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (6, 4)
    assert client.responses.retrieve(first.id).output == first.output
    second = client.responses.create(model=MODEL, input="more", previous_response_id=first.id)
    assert second.usage is not None and second.usage.input_tokens == 9
    for one in (first, second):
        client.responses.delete(one.id)
    with pytest.raises(openai.NotFoundError, match="no stored response"):
        client.responses.retrieve(first.id)


def test_every_general_model_that_the_client_names_answers(client: OpenAI) -> None:
    general = [name for name in names(ResponsesModel) if not any(kind in name for kind in SPECIAL)]
    assert len(general) > 50
    for name in (*general, "gpt-5.6"):  # the last is of the examples of OpenAI's agents SDK
        created = client.responses.create(model=name, input=TEXT, store=False)
        assert created.output_text == TEXT, name


def test_the_stream_helper_assembles_text_calls_and_parsed_output(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=f"Look: {CALL}", tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    message, call = final.output
    assert message.type == "message" and final.output_text == "Look: "
    assert call.type == "function_call" and call.arguments == '{"city": "Oslo"}'
    with client.responses.stream(model=MODEL, input=OBJECT, text_format=Person) as stream:
        parsed = stream.get_final_response().output_parsed
    assert parsed == Person(name="Ada", age=36)


def test_a_model_of_pydantic_is_parsed(client: OpenAI) -> None:
    parsed = client.responses.parse(model=MODEL, input=OBJECT, text_format=Person)
    assert parsed.output_parsed == Person(name="Ada", age=36)


@pytest.mark.parametrize("stores", [True, False])
def test_a_loop_of_tools_answers_with_their_results(client: OpenAI, stores: bool) -> None:
    asked: ResponseInputParam = [{"role": "user", "content": CALL}]
    first = client.responses.create(model=MODEL, input=asked, tools=[TOOL], store=stores)
    (call,) = first.output
    assert call.type == "function_call" and call.name == "weather"
    asked += [item.to_dict() for item in first.output]  # type: ignore[misc]  # as their docs do
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": WEATHER})
    last = client.responses.create(model=MODEL, input=asked, tools=[TOOL], store=stores)
    assert last.output_text == WEATHER


async def test_the_asynchronous_client_streams_a_response(server: ChatServer) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/openai/v1", api_key=server.token) as client:
        async with client.responses.stream(model=MODEL, input=TEXT) as stream:
            texts = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            final = await stream.get_final_response()
    assert "".join(texts) == final.output_text == TEXT


def test_errors_raise_the_client_exceptions_with_the_service_message(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'web_search' is not supported"):
        client.responses.create(model=MODEL, input=TEXT, tools=[{"type": "web_search"}])
    with pytest.raises(openai.NotFoundError, match="svc/echo"):
        client.responses.create(model="gpt-none", input=TEXT)
    with pytest.raises(openai.NotFoundError, match="no embedding model has that name"):
        client.embeddings.create(model="text-embedding-3-small", input=TEXT)


@pytest.mark.filterwarnings(LEGACY)
def test_a_socket_answers_turns_and_calls_and_continues_what_is_not_stored(
    client: OpenAI,
) -> None:
    with client.responses.connect() as socket:

        def turn(**fields: Any) -> Response:
            """Sends a request; checks its events strictly."""
            socket.response.create(model=MODEL, store=False, tools=[TOOL], **fields)
            while True:
                event = ResponsesEvent.validate_python(json.loads(socket.recv_bytes()))
                assert getattr(event, "stream_id", None) == fields.get("stream_id"), event
                if event.type == "response.completed":
                    return Response.model_validate(event.response.model_dump())

        first = turn(input="One sentence. Another. A third.", instructions="Be kind.")
        second = turn(input="And two more. Done.", previous_response_id=first.id, stream_id="a")
        assert second.output_text == "And two more. Done." and second.usage is not None
        assert second.usage.input_tokens == 14  # with both turns
        (call,) = turn(input=CALL, previous_response_id=second.id).output
        assert call.type == "function_call"
        result: ResponseInputParam = [
            {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER}
        ]
        socket.response.create(
            model=MODEL, input=result, previous_response_id=first.id, store=False
        )
        assert socket.recv().type == "error"  # no call precedes the result
        with client.responses.connect() as other:
            other.response.create(model=MODEL, input="on", previous_response_id=first.id)
            error = other.recv()
            assert error.type == "error" and error.status == 400
            assert error.error.code == "previous_response_not_found"


@pytest.mark.filterwarnings(LEGACY)
def test_a_stored_response_of_a_socket_is_continued_on_another(client: OpenAI) -> None:
    with client.responses.connect() as socket:
        socket.response.create(model=MODEL, input=TEXT)
        (first,) = (e.response for e in take(socket) if e.type == "response.completed")
    again = client.responses.create(model=MODEL, input="more", previous_response_id=first.id)
    assert again.usage is not None and again.usage.input_tokens == 9
    assert Response.model_validate(client.responses.retrieve(first.id).model_dump()) is not None


@pytest.mark.parametrize("name", ["livekit", "pipecat"])
def test_the_default_socket_of_agent_frameworks_answers_two_turns_and_a_tool(
    registry_clients: RegistryClients, server: ChatServer, name: str
) -> None:
    url = f"{server.url.replace('http', 'ws')}/openai/v1/responses"
    seen = registry_clients.run(HERE / f"responses_{name}.py", url, server.token)
    sentences = ["One sentence. Another sentence. A third.", "And two more. That is all."]
    if name == "livekit":
        assert [seen["first"]["text"], seen["second"]["text"]] == sentences
        assert seen["tool"]["calls"] == [["weather", '{"city": "Oslo"}']]
        assert seen["tool"]["text"] == WEATHER
        assert "svc/echo" in seen["unknown"]["message"]
        return
    assert seen["text"] == "".join(sentences) and not seen["errors"]
    assert seen["calls"] == [{"city": "Oslo"}] and seen["results"] == [WEATHER]
    assert seen["continued"] == [[1, False, False], [1, False, True], [1, False, False]]


@pytest.mark.slow
def test_the_default_model_of_the_agents_sdk_runs_tools_and_typed_outputs(
    registry_clients: RegistryClients, server: ChatServer
) -> None:
    base_url = f"{server.url}/openai/v1"
    seen = registry_clients.run(HERE / "openai_agents.py", base_url, server.token)
    assert seen == {
        "class": "OpenAIResponsesModel",
        "text": TEXT,
        "tool": WEATHER,
        "streamed": WEATHER,
        "events": ["function_call", "function_call_output", "message"],
        "person": {"name": "Ada", "age": 36},
        "continued": "more",
        "tokens": [6, 11],
    }
