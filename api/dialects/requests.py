"""Parts of requests that dialects share: options in the query of HTTP requests and handshakes, keys
and messages of sockets, recordings by URL, and short-lived tokens."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_origin

from fastapi import Request
from pydantic import BaseModel, model_validator
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from api.http.context import context_of
from api.http.errors import ApiError
from api.http.streaming import while_connected
from api.http.uploads import MAX_FILE_BYTES, UPLOAD_FOLDERS, validated
from api.services import PlatformServices, Services, SpeechServices
from api.sockets.kernel.conversation import Conversation, checked, parse_event
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.events import LenientModel
from models.base import ModelInfo
from pipelines.accounts.authentication import Principal, Scope
from pipelines.temporary_directories import temporary_directory_in_thread

OFF = ("", "false", "0", "none", "null")
"""Values of an option that is switched off, in lower case."""


class DialectQuery(BaseModel):
    """Base class of parameters. Unknown parameters are ignored, except those in `refused`."""

    refused: ClassVar[frozenset[str]] = frozenset()
    """Unsupported parameters that would change the answer. They are refused unless set to off."""

    @model_validator(mode="before")
    @classmethod
    def _refuses(cls, values: Any) -> Any:
        for name in sorted(cls.refused & set(values if isinstance(values, dict) else ())):
            given = values[name] if isinstance(values[name], list) else [values[name]]
            if any(value and str(value).strip().lower() not in OFF for value in given):
                raise ValueError(f"{name}: is not supported by this service; leave it out")
        return values

    @classmethod
    def of_socket(cls, params: QueryParams) -> Self:
        """Validates the query of a handshake. Raises ApiError(validation_error)."""
        lists = {
            name for name, field in cls.model_fields.items() if get_origin(field.annotation) is list
        }
        return validated(
            cls, {name: params.getlist(name) if name in lists else params[name] for name in params}
        )

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Returns the parameters with the changes of a message. Raises ClientFault."""
        return checked(type(self), {**self.model_dump(), **changes})


def check_model(field: str, families: tuple[str, ...], name: str, model: ModelInfo) -> None:
    """Accepts ids and aliases of the deployed model, and names that begin with one of `families`.
    Raises ApiError(model_not_found)."""
    if not name.startswith(families) and name not in (model.id, *model.aliases):
        message = f"{field}: no model has that name; {', '.join(families)} stand for {model.id}"
        raise ApiError("model_not_found", message, param=field)


class SocketMessage(LenientModel):
    """Base class of the client's messages. A subclass has the fields of all its types."""

    pieces: ClassVar[Collection[str]] = ()  # text fields that may end within a character

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses and validates a message. Raises ClientFault."""
        return checked(cls, parse_event(text, pieces=cls.pieces))


def dialect_socket(
    path: str,
    service: Literal["stt", "tts"],
    conversation: Callable[[SocketSession, Services], Conversation],
    check: Callable[[QueryParams], object],
    schemes: tuple[str, ...],
    key_in: Callable[[str], str] | None = None,
    key_queries: tuple[str, ...] = (),
) -> list[BaseRoute]:
    """Returns the routes of a dialect's socket. The key follows one of the `schemes` in the header
    or among the subprotocols, is in a query parameter of `key_queries`, or is found by `key_in` in
    the first message. `check` validates the query before the upgrade; it may raise ApiError."""

    def scopes(websocket: WebSocket, _: object) -> tuple[Scope, ...]:
        check(websocket.query_params)
        return (service,)

    return socket_routes(
        path,
        SocketRoute(
            service,
            conversation,
            (service,),
            visitors=True,
            scopes_of=scopes,
            schemes=schemes,
            key_queries=("apiKey", *key_queries),
            greets=False,
            has_get=False,
            key_after=schemes,
            key_in=key_in,
        ),
    )


@asynccontextmanager
async def fetched(
    request: Request, speech: SpeechServices, url: str, *, watches: bool = True
) -> AsyncIterator[Path]:
    """Downloads a recording, which exists until the block ends. During the download, the request
    takes no place at its route. With `watches`, a disconnect of the client stops the download.
    Raises ApiError(overloaded), ClientDisconnect or the errors of `SpeechServices.fetch`."""
    context = context_of(request)
    async with (
        context.upload_space() as take,
        temporary_directory_in_thread(UPLOAD_FOLDERS) as folder,
    ):
        context.place.step_aside()
        path = folder / "0"
        fetching = speech.fetch(url, path, MAX_FILE_BYTES, take)
        await (while_connected(request.receive, fetching) if watches else fetching)
        context.place.take()
        yield path


async def short_token(
    principal: Principal,
    platform: PlatformServices,
    wanted: Sequence[Scope],
    seconds: float,
    *,
    single_use: bool = False,
) -> str:
    """Creates a browser token with those of the `wanted` scopes that the key has. Raises
    ApiError(insufficient_scope) if it has none, or the errors of `ClientSecrets.create`."""
    scopes = [scope for scope in wanted if scope in principal.scopes]
    if not scopes:
        raise ApiError("insufficient_scope", f"the API key has none of {', '.join(wanted)}")
    token = await platform.client_secrets.create(
        principal, scopes, None, timedelta(seconds=seconds), single_use=single_use
    )
    return token.value
