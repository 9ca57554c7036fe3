"""Embeddings and legacy completions over HTTP: inputs, refusals and charges."""

import json
from base64 import b64decode
from typing import Any

import httpx
import numpy as np
import pytest

from models.errors import EngineLost
from models.llm.base import GenerationRequest
from tests.api.money import Books
from tests.local_ports import LocalChatModel

EMBEDDINGS, COMPLETIONS = "/openai/v1/embeddings", "/openai/v1/completions"
Auth = dict[str, str]


async def embed(client: httpx.AsyncClient, auth: Auth, **body: Any) -> httpx.Response:
    return await client.post(EMBEDDINGS, json=body, headers=auth)


async def test_both_formats_have_the_same_numbers_in_the_order_of_the_inputs(
    client: httpx.AsyncClient, auth: Auth, books: Books
) -> None:
    texts = [f"text {number}" for number in range(250)]
    floats = await embed(client, auth, input=texts)
    encoded = await embed(client, auth, input=texts, encoding_format="base64")
    numbers = np.array([item["embedding"] for item in floats.json()["data"]])
    items = encoded.json()["data"]
    decoded = [np.frombuffer(b64decode(item["embedding"]), "<f4") for item in items]
    assert np.allclose(numbers, decoded, atol=1e-7) and numbers.shape == (250, 32)
    assert encoded.json()["usage"] == {"prompt_tokens": 500, "total_tokens": 500}
    # 20 micro-USD a thousand tokens.
    assert await books.charged("embedding") == (1000, 20)


@pytest.mark.in_process  # a running service may have no model of embeddings
async def test_token_ids_are_one_input_or_several(client: httpx.AsyncClient, auth: Auth) -> None:
    text = (await embed(client, auth, input="abc")).json()["data"]
    ids = (await embed(client, auth, input=[97, 98, 99])).json()["data"]
    several = (await embed(client, auth, input=[[97, 98, 99], [98]])).json()["data"]
    assert ids == text and several[0] == text[0] and len(several) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [[1], "a"]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [True]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [10**40]}, "is not a token"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": [1] * 8193}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 33}, "dimensions"),
        ({"input": "word " * 9000}, "takes 9000 tokens"),
        ({"input": ["word " * 8000] * 38}, "over 300000 tokens"),
    ],
)
async def test_an_invalid_input_is_400_and_costs_nothing(
    client: httpx.AsyncClient, auth: Auth, books: Books, body: dict[str, Any], message: str
) -> None:
    answer = await embed(client, auth, **body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert message in f"{error['param']} {error['message']}"
    assert error["type"] == "invalid_request_error"
    assert await books.charged("embedding") == (0, 0)


async def test_prompts_are_continued_without_a_template_and_charged(
    client: httpx.AsyncClient, auth: Auth, books: Books, prompts: list[Any]
) -> None:
    body = {"prompt": ["one two three", "four"], "max_tokens": 2, "stop": "\n", "temperature": 0.5}
    answer = await client.post(COMPLETIONS, json=body, headers=auth)
    choices = answer.json()["choices"]
    assert [choice["text"] for choice in choices] == ["one two", "four"]
    assert [choice["finish_reason"] for choice in choices] == ["length", "stop"]
    assert all(prompt.is_raw and prompt.sampling.stop == ("\n",) for prompt in prompts)
    assert (await books.charged("chat"))[0] == answer.json()["usage"]["total_tokens"] == 7
    chats = await client.get("/chats", headers=auth)
    assert chats.json()["pagination"]["total"] == 0


@pytest.mark.in_process
@pytest.mark.parametrize("fails", [False, True])
async def test_a_stream_charges_the_prompts_that_were_continued(
    client: httpx.AsyncClient,
    auth: Auth,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
    fails: bool,
) -> None:
    generate = LocalChatModel.generate
    prompts: list[str] = []

    def counted(model: LocalChatModel, request: GenerationRequest) -> Any:
        prompts.append(request.messages[0].content)
        if fails and len(prompts) > 1:
            raise EngineLost("the replica died")
        return generate(model, request)

    monkeypatch.setattr(LocalChatModel, "generate", counted)
    body = {"prompt": ["one two", "three"], "model": "svc/echo", "stream": True}
    answer = await client.post(COMPLETIONS, json=body, headers=auth)
    *lines, done = filter(None, answer.text.split("\n"))
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert answer.status_code == 200 and done == "data: [DONE]"
    texts = ["", ""]
    for event in events:
        for choice in event.get("choices", ()):
            texts[choice["index"]] += choice["text"]
    if fails:
        assert texts == ["one two", ""] and events[-1]["error"]["code"] == "unavailable"
        assert (await books.charged("chat"))[0] == 4
    else:
        assert texts == ["one two", "three"]
        charged, _ = await books.charged("chat")
        assert charged == events[-1]["usage"]["total_tokens"] == 6


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [1, 2]},
        {"prompt": ["a"] * 21},
        {"prompt": "a", "n": 2},
        {"prompt": "a", "best_of": 2},
        {"prompt": "a", "echo": True},
        {"prompt": "a", "logprobs": 0},
        {"prompt": "a", "suffix": "b"},
        {"prompt": "a", "logit_bias": {"50256": -100}},
        {"prompt": "a", "max_tokens": 0},
    ],
)
async def test_an_unsupported_completion_is_400(
    client: httpx.AsyncClient, auth: Auth, body: dict[str, Any]
) -> None:
    answer = await client.post(COMPLETIONS, json=body, headers=auth)
    assert answer.status_code == 400 and answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["moderations", "images/generations"])
async def test_routes_that_do_not_exist_are_404_in_the_envelope(
    client: httpx.AsyncClient, auth: Auth, path: str
) -> None:
    answer = await client.post(f"/openai/v1/{path}", json={"input": "a"}, headers=auth)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
