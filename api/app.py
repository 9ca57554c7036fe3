"""The application: middleware, error handlers and routers over services."""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api import docs
from api.errors import ApiError, on_client_left, on_error, on_http_error, on_validation_error
from api.middleware import RequestFrame
from api.routes import (
    accounts,
    audio,
    billing,
    chat,
    console,
    custom_voices,
    files,
    health,
    inworld,
    keys,
    metrics,
    models,
    openai_models,
    openai_speech,
    openai_transcription,
    plans,
    speech,
    stt_socket,
    transcription,
    tts_socket,
    voice_reports,
    voices,
    webhooks,
    workspaces,
)
from api.services import Services
from api.sockets.routes import unknown_sockets
from configs.logs import redact_logs
from configs.settings import BRAND
from db.errors import DatabaseError
from models.errors import EngineError
from pipelines.errors import PipelineError


def create_app(services: Services, *, sees_clients: bool = True) -> FastAPI:
    """The whole HTTP interface; several may live in one process.

    Without `sees_clients` a proxy stands before it, whose word on addresses proves nothing.
    """
    redact_logs()
    app = FastAPI(
        title=BRAND,
        version="1.0.0",
        summary="Text to speech, speech to text and chat",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.sees_clients = sees_clients
    app.add_middleware(RequestFrame)
    for error in (ApiError, EngineError, PipelineError, DatabaseError):
        app.add_exception_handler(error, on_error)
    app.add_exception_handler(ClientDisconnect, on_client_left)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    routers = [
        health.router,
        *accounts.routers,
        keys.router,
        plans.router,
        billing.router,
        models.router,
        openai_models.router,
        speech.router,
        openai_speech.router,
        inworld.router,
        voices.router,
        custom_voices.router,
        *voice_reports.routers,
        transcription.router,
        openai_transcription.router,
        audio.router,
        chat.router,
        files.router,
        workspaces.router,
        webhooks.router,
    ]
    for router in routers:
        # Not include_router: it would match every path twice.
        app.router.routes.extend(router.routes)
    app.router.routes.extend(tts_socket.routes)
    app.router.routes.extend(inworld.routes)
    app.router.routes.extend(console.routes())
    app.router.routes.extend(metrics.routes())
    app.router.routes.extend(stt_socket.routes())
    docs.add_docs(app)
    app.router.routes.append(unknown_sockets())
    return app
