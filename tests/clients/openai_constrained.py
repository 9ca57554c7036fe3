"""LangChain's structured output with a real model. Arguments: base URL, key, model.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import json
import sys
from typing import Any, Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

TEXT = "Ada Lovelace, born in 1815, wrote the first program."


class Person(BaseModel):
    """A person who is mentioned."""

    born: int = Field(ge=1000, le=2100)
    work: Literal["science", "art", "sport"]


def see(base_url: str, key: str, model: str) -> dict[str, Any]:
    chat = ChatOpenAI(
        base_url=base_url, api_key=key, model=model, max_retries=0, max_tokens=60, temperature=0
    )
    person = chat.with_structured_output(Person, method="json_schema").invoke(TEXT)
    return dict(person.model_dump())


sys.stdout.write(json.dumps(see(*sys.argv[1:4])) + "\n")
