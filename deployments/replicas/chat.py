"""A replica that chats."""

import operator
from collections.abc import AsyncGenerator
from contextlib import aclosing

from deployments.replicas.model import ModelDeployment
from deployments.replicas.timing import answer_timed
from models.llm.base import ChatEngine, GenerationDelta, GenerationRequest
from models.registry import CHAT
from pipelines.chat.coalescing import coalesce

# A piece that crosses processes costs as much CPU as a fifth of a token of a small model, on the
# cores that make the tokens. Some 16 pieces a second still look like typing.
PIECE_INTERVAL_S = 0.06


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
            deltas = coalesce(made, operator.add, PIECE_INTERVAL_S)
            async with aclosing(deltas):
                async for delta in deltas:
                    yield delta
