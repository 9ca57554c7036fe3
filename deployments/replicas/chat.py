"""A replica that chats."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from deployments.replicas.model import ModelDeployment
from deployments.replicas.timing import answer_timed
from models.llm.answer_assembly import joined_calls
from models.llm.base import ChatEngine, GenerationDelta, GenerationRequest
from models.registry import CHAT
from pipelines.chat.coalescing import coalesce

# A piece that crosses processes costs as much CPU as a fifth of a token of a small model, on the
# cores that make the tokens. Some 16 pieces a second still look like typing.
PIECE_INTERVAL_S = 0.06


def merge_deltas(earlier: GenerationDelta, later: GenerationDelta) -> GenerationDelta:
    """Two consecutive pieces as one."""
    return GenerationDelta(
        text=earlier.text + later.text,
        finish_reason=later.finish_reason or earlier.finish_reason,
        usage=later.usage or earlier.usage,
        tool_calls=joined_calls(earlier.tool_calls, later.tool_calls),
        reasoning=earlier.reasoning + later.reasoning,
    )


class ChatDeployment(ModelDeployment[ChatEngine]):
    """One language model, which batches the requests it holds by itself."""

    def __init__(self) -> None:
        super().__init__(CHAT)

    async def generate(
        self, request: GenerationRequest, caller: str | None = None
    ) -> AsyncGenerator[GenerationDelta, None]:
        """The answer as it grows, for the request `caller`. Raises EngineError."""
        with self.serving(caller) as engine:
            made = answer_timed(engine.generate(request))
            deltas = coalesce(made, merge_deltas, PIECE_INTERVAL_S)
            async with aclosing(deltas):
                async for delta in deltas:
                    yield delta
