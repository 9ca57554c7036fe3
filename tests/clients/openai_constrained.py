"""LangChain with a real model that must answer in a shape. Arguments: base URL, key, model.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import json
import sys
from typing import Any, Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

TEXT = "Ada Lovelace, born in 1815, wrote the first program. What is the weather in Oslo?"


class Person(BaseModel):
    """Somebody who is mentioned."""

    name: str = Field(max_length=40)
    born: int = Field(ge=1000, le=2100)
    work: Literal["science", "art", "sport"]


@tool  # type: ignore[untyped-decorator]  # not of this environment
def weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather of a city."""
    return f"fine in {city}, in {unit}"


def see(base_url: str, key: str, model: str) -> dict[str, Any]:
    chat = ChatOpenAI(
        base_url=base_url, api_key=key, model=model, max_retries=0, max_tokens=120, temperature=0
    )
    people = [
        chat.with_structured_output(Person, method=method).invoke(TEXT)
        for method in ("json_schema", "function_calling")
    ]
    whole: Any = None
    for chunk in chat.bind_tools([weather], tool_choice="required").stream(TEXT):
        whole = chunk if whole is None else whole + chunk
    return {
        "people": [person.model_dump() for person in people],
        "called": [weather.invoke(call).content for call in whole.tool_calls],
    }


sys.stdout.write(json.dumps(see(*sys.argv[1:4])) + "\n")
