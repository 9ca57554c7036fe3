"""Dependencies of routes: one group of services each, and the caller's principal."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from api.services import (
    ChatServices,
    InfrastructureServices,
    PlatformServices,
    Services,
    SpeechServices,
    VoiceServices,
)
from pipelines.accounts.authentication import Principal
from pipelines.billing.billing import IdempotentOperation


def services_of(connection: HTTPConnection) -> Services:
    """The services of this application."""
    services: Services = connection.app.state.services
    return services


async def speech_of(connection: HTTPConnection) -> SpeechServices:
    return services_of(connection).speech


async def _chat_of(connection: HTTPConnection) -> ChatServices:
    return services_of(connection).chat


async def _voices_of(connection: HTTPConnection) -> VoiceServices:
    return services_of(connection).voices


async def _platform_of(connection: HTTPConnection) -> PlatformServices:
    return services_of(connection).platform


async def infrastructure_of(connection: HTTPConnection) -> InfrastructureServices:
    return services_of(connection).infrastructure


async def _principal_of(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


def _operation_of(request: Request) -> IdempotentOperation | None:
    operation: IdempotentOperation | None = getattr(request.state, "operation", None)
    return operation


SpeechDep = Annotated[SpeechServices, Depends(speech_of)]
ChatDep = Annotated[ChatServices, Depends(_chat_of)]
VoicesDep = Annotated[VoiceServices, Depends(_voices_of)]
PlatformDep = Annotated[PlatformServices, Depends(_platform_of)]
InfrastructureDep = Annotated[InfrastructureServices, Depends(infrastructure_of)]
PrincipalDep = Annotated[Principal, Depends(_principal_of)]
"""The workspace and scopes of the request; only on routes that are not public."""

OperationDep = Annotated[IdempotentOperation | None, Depends(_operation_of)]
"""The operation of a request with an Idempotency-Key, which makes its holds idempotent."""
