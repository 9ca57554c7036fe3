"""Intent handling for Wyoming: the chat model answers what the user said."""

from contextlib import aclosing
from typing import TypeAlias

from api.http.errors import CODED, to_api_error
from api.http.limits import require_request
from api.services import Services
from api.sockets.kernel.session import SocketSession
from api.wyoming.events import WyomingEvent, wyoming_event
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from pipelines.chat.pipeline import ChatRequest
from pipelines.tasks import TtlCache

INSTRUCTIONS = (
    "You are a voice assistant. Answer in one to three short sentences that can be read aloud: "
    "plain words without lists, markup or emoji, in the language of the user."
)
ANSWER_TOKENS = 512
REMEMBERED_S, MOST_CONVERSATIONS = 3600.0, 500
MOST_MESSAGES, MOST_CHARACTERS = 20, 20_000  # of a conversation, the latest

Memory: TypeAlias = TtlCache[str, list[ChatMessage]]
"""What was said in each conversation, by its id; nothing of it is stored."""


def open_memory() -> Memory:
    return TtlCache(REMEMBERED_S, MOST_CONVERSATIONS)


async def answer(
    session: SocketSession, services: Services, memory: Memory, said: WyomingEvent
) -> None:
    """Sends the answer, in pieces too if the client knows them; or why there is none."""
    conversation_id = said.context.conversation_id if said.context else None
    context = {"conversation_id": conversation_id} if conversation_id else None
    earlier = await memory.get(conversation_id, _nothing) if conversation_id else []
    asked = ChatMessage("user", said.text)
    sampling = SamplingOptions(max_tokens=ANSWER_TOKENS)
    has_begun = False
    try:
        require_request(await services.platform.request_limits.hit(session.principal))
        completion = await services.chat.completions.start(
            ChatRequest(
                session.principal.workspace_id,
                GenerationRequest(
                    (asked,), sampling, cache_key=conversation_id or "", is_spoken=True
                ),
                save_chat=False,
                operation=session.payer,
                history=(ChatMessage("system", INSTRUCTIONS), *earlier),
            )
        )
        async with aclosing(completion), aclosing(completion.deltas()) as deltas:
            if has_begun := said.streams:
                await session.send(wyoming_event("handled-start", context=context))
            async for delta in deltas:
                if has_begun and delta.text:
                    await session.send_speech(wyoming_event("handled-chunk", text=delta.text))
        text = completion.answer.text.strip()
        earlier += [asked, ChatMessage("assistant", text)]
        while sum(len(one.content) for one in earlier) > MOST_CHARACTERS:
            del earlier[:2]
        del earlier[:-MOST_MESSAGES]
        ends = wyoming_event("handled", text=text, context=context)
    except CODED as error:
        ends = wyoming_event("not-handled", text=to_api_error(error).message, context=context)
    await session.send(ends + (wyoming_event("handled-stop") if has_begun else b""))


async def _nothing() -> list[ChatMessage]:
    return []
