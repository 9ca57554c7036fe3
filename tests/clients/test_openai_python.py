"""Chat with the official Python client of OpenAI, unchanged, in every style of loop."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.api.chat_server import ChatServer

MODEL = "svc/slm-3b-int4"
TEXT = "héllo 😀 big world"


@pytest.fixture(params=["/openai/v1", "/v1"])
def client(server: ChatServer, request: pytest.FixtureRequest) -> OpenAI:
    return OpenAI(base_url=server.url + request.param, api_key=server.token, max_retries=0)


def messages(text: str = TEXT) -> list[ChatCompletionMessageParam]:
    return [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]


def test_a_call_without_stream_returns_a_completion(client: OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=messages())
    assert completion.choices[0].message.content == TEXT
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None and completion.usage.completion_tokens == 4
    assert completion.model == "svc/echo"


def test_streaming_works_for_a_loop_over_the_first_choice(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=messages(), stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == TEXT


def test_streaming_with_usage_works_for_a_loop_over_all_choices(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=messages(), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == TEXT
    assert [c.finish_reason for c in choices if c.finish_reason] == ["stop"]
    assert chunks[0].choices[0].delta.role == "assistant"
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == 1 and usages[0].total_tokens == 10


def test_the_stream_helper_assembles_the_completion(client: OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=messages()) as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(texts) == TEXT
    assert final.choices[0].message.content == TEXT
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None and final.usage.completion_tokens == 4


def test_raw_responses_show_headers_and_the_fields_of_this_service(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages())
    assert raw.headers["x-request-id"]
    completion = raw.parse()
    extra: dict[str, Any] = completion.model_extra or {}
    assert len(extra["chat_id"]) == 36 and extra["response_time_ms"] >= 0


def test_a_chat_is_continued_through_extra_body(client: OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=messages())
    chat_id = (first.model_extra or {})["chat_id"]
    second = client.chat.completions.create(
        model=MODEL, messages=messages("more"), extra_body={"chat_id": chat_id, "top_k": 5}
    )
    assert second.usage is not None and first.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


async def test_the_asynchronous_client_streams_a_completion(server: ChatServer) -> None:
    async with AsyncOpenAI(base_url=server.url + "/openai/v1", api_key=server.token) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=messages(), stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == TEXT


def test_errors_raise_the_client_exceptions_with_the_service_message(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as wrong:
        client.chat.completions.create(model=MODEL, messages=messages(), temperature=3)
    assert (wrong.value.code, wrong.value.param) == ("validation_error", "temperature")
    with pytest.raises(openai.NotFoundError, match="svc/echo"):
        client.chat.completions.create(model="gpt-none", messages=messages())
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk_wrong").chat.completions.create(
            model=MODEL, messages=messages()
        )


def test_an_error_during_a_stream_raises_its_message(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=messages("please do not break now"), stream=True
    )
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="the replica died"):
        seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)


def test_a_stream_can_be_closed_before_its_end(client: OpenAI) -> None:
    with client.chat.completions.create(model=MODEL, messages=messages(), stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.content == ""
