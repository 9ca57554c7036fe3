"""Saved chats."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from api.http.bodies import Done, Id, Page, Paged, PageQuery, Pagination, Shown
from api.http.routing import ChatDep, PrincipalDep, make_router
from api.native.chat.schemas import AnsweredCall
from pipelines.errors import ChatNotFound

router = make_router("chat", scope="chat")


class ListedChat(Shown):
    chat_id: Id = Field(validation_alias="id")
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


STORED = {"role", "content", "model", "created_at"}  # fields stored as columns


class SavedChat(ListedChat):
    messages: list[SavedMessage]  # one page, oldest first
    pagination: Pagination


class MessagesQuery(PageQuery):
    limit: int = Field(default=100, ge=1, le=100)


def to_chat_id(chat_id: str) -> UUID:
    """Parses the id of a chat. Raises ChatNotFound if it is not a UUID."""
    try:
        return UUID(chat_id)
    except ValueError:
        raise ChatNotFound from None


@router.get("/chats", summary="List saved chats, last used first")
async def list_saved(principal: PrincipalDep, chat: ChatDep, query: Paged) -> Page[ListedChat]:
    chats, total = await chat.history.page(principal.workspace_id, query.page, query.limit)
    return query.answer([ListedChat.model_validate(saved) for saved in chats], total)


@router.get("/chats/{chat_id}", summary="Get a saved chat and a page of its messages")
async def read_saved(
    chat_id: str, principal: PrincipalDep, chat: ChatDep, query: Annotated[MessagesQuery, Query()]
) -> SavedChat:
    saved, entries, total = await chat.history.read(
        principal.workspace_id, to_chat_id(chat_id), query.page, query.limit
    )
    messages = [
        SavedMessage(**entry.extra, **entry.model_dump(include=STORED)) for entry in entries
    ]
    pagination = query.answer(messages, total).pagination
    listed = dict(ListedChat.model_validate(saved))
    return SavedChat(**listed, messages=messages, pagination=pagination)


@router.delete("/chats/{chat_id}", summary="Delete a saved chat")
async def delete_saved(chat_id: str, principal: PrincipalDep, chat: ChatDep) -> Done:
    await chat.history.delete(principal.workspace_id, to_chat_id(chat_id))
    return Done(message="the chat is deleted")
