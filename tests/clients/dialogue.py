"""A language model by rules, for spoken dialogues whose course is known."""

from collections.abc import AsyncGenerator
from dataclasses import replace

from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest
from tests.engines.echo import EchoEngine

GREETING = "Hello, what can I do for you?"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
STORY = "There was a king, who lived beside the sea, and every morning he counted ships. " * 10
FAREWELL = "Goodbye, and thank you for calling."
SENTENCES = {  # of the user
    "weather": "What is the weather like in Oslo today?",
    "story": "Please tell me a long story.",
    "stop": "I have heard enough of this now.",  # without a pause, at which a turn may end
    "goodbye": "Goodbye.",
}


class DialogueEngine(EchoEngine):
    """Answers by words in the last message of the user."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        answer = ChatMessage("user", _answer(request.messages[-1]))
        echoed = replace(request, messages=(*request.messages, answer))
        async for delta in super().generate(echoed):
            yield delta


def _answer(last: ChatMessage) -> str:
    said = last.content.lower()
    if last.role == "tool":
        return f"In Oslo it is {last.content}."
    if "weather" in said:
        return CALL
    if "story" in said:
        return STORY
    return FAREWELL if "bye" in said else GREETING
