"""LangChain's ChatOpenAI, pointed at this service. Arguments: base URL, key.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.clients.openai_texts import CALL, MODEL, OBJECT, PERSON_CALL, TEXT


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool  # type: ignore[untyped-decorator]  # not of this environment
def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


def see(base_url: str, key: str) -> dict[str, Any]:
    chat = ChatOpenAI(base_url=base_url, api_key=key, model=MODEL, max_retries=0)
    whole = chat.invoke(TEXT)
    chunks = list(chat.stream(TEXT))
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    able = chat.bind_tools([weather])
    asked = able.invoke(CALL)
    streamed: Any = None
    for chunk in able.stream(CALL):
        streamed = chunk if streamed is None else streamed + chunk
    results = [weather.invoke(call) for call in asked.tool_calls]
    answer = able.invoke([HumanMessage(CALL), asked, *results])
    kinds = {
        method: chat.with_structured_output(Person, method=method).invoke(OBJECT).model_dump()
        for method in ("json_schema", "json_mode")
    }
    calling = chat.with_structured_output(Person, method="function_calling")
    kinds["function_calling"] = calling.invoke(PERSON_CALL).model_dump()
    newer = ChatOpenAI(
        base_url=base_url, api_key=key, model=MODEL, max_retries=0, use_responses_api=True
    )
    handy = newer.bind_tools([weather])
    called = handy.invoke(CALL)
    results = [weather.invoke(call) for call in called.tool_calls]
    responses = {
        "text": newer.invoke(TEXT).text,
        "streamed": "".join(chunk.text for chunk in newer.stream(TEXT)),
        "calls": [{"name": call["name"], "args": call["args"]} for call in called.tool_calls],
        "answer": handy.invoke([HumanMessage(CALL), called, *results]).text,
        "structured": newer.with_structured_output(Person).invoke(OBJECT).model_dump(),
    }
    try:
        ChatOpenAI(base_url=base_url, api_key=key, model="gpt-9", max_retries=0).invoke(TEXT)
        refused = ""
    except Exception as error:
        refused = type(error).__name__
    return {
        "text": whole.content,
        "usage": whole.usage_metadata,
        "finish": whole.response_metadata["finish_reason"],
        "model": whole.response_metadata["model_name"],
        "streamed": total.content,
        "streamed_usage": total.usage_metadata,
        "asynchronous": asyncio.run(chat.ainvoke(TEXT)).content,
        "calls": [{"name": call["name"], "args": call["args"]} for call in asked.tool_calls],
        "streamed_calls": [
            {"name": call["name"], "args": call["args"]} for call in streamed.tool_calls
        ],
        "answer": answer.content,
        "structured": kinds,
        "responses": responses,
        "refused": refused,
    }


sys.stdout.write(json.dumps(see(*sys.argv[1:3])) + "\n")
