"""Saved chats."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel

from api.http.deps import ChatDep, PrincipalDep
from api.http.routing import make_router
from api.http.schemas import Done, Page, Pagination
from api.native.chat.tools import AnsweredCall
from pipelines.errors import ChatNotFound

router = make_router(scope="chat")


class ListedChat(BaseModel):
    chat_id: str
    title: str
    created_at: datetime
    updated_at: datetime


class SavedMessage(BaseModel):
    role: str
    content: str
    tool_calls: list[AnsweredCall] | None = None  # answers only
    tool_call_id: str | None = None  # results of tools only
    model: str | None = None  # answers only
    created_at: datetime


class SavedChat(ListedChat):
    messages: list[SavedMessage]


def to_chat_id(chat_id: str) -> UUID:
    """Raises ChatNotFound, also for text that is no UUID."""
    try:
        return UUID(chat_id)
    except ValueError:
        raise ChatNotFound from None


@router.get("/chats", tags=["chat"], summary="The workspace's saved chats, last used first")
async def list_saved(
    principal: PrincipalDep,
    chat: ChatDep,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[ListedChat]:
    chats, total = await chat.history.page(principal.workspace_id, page, limit)
    return Page(
        data=[
            ListedChat(
                chat_id=str(one.id),
                title=one.title,
                created_at=one.created_at,
                updated_at=one.updated_at,
            )
            for one in chats
        ],
        pagination=Pagination.of(page, limit, total),
    )


@router.get("/chats/{chat_id}", tags=["chat"], summary="A saved chat and its messages")
async def read_saved(chat_id: str, principal: PrincipalDep, chat: ChatDep) -> SavedChat:
    opened = await chat.history.read(principal.workspace_id, to_chat_id(chat_id))
    saved = opened.chat
    return SavedChat(
        chat_id=str(saved.id),
        title=saved.title,
        created_at=saved.created_at,
        updated_at=saved.updated_at,
        messages=[
            SavedMessage(
                role=entry.role,
                content=entry.content,
                tool_calls=entry.extra.get("tool_calls"),
                tool_call_id=entry.extra.get("tool_call_id"),
                model=entry.model,
                created_at=entry.created_at,
            )
            for entry in opened.entries
        ],
    )


@router.delete("/chats/{chat_id}", tags=["chat"], summary="Delete a saved chat")
async def delete_saved(chat_id: str, principal: PrincipalDep, chat: ChatDep) -> Done:
    await chat.history.delete(principal.workspace_id, to_chat_id(chat_id))
    return Done(message="the chat is deleted")
