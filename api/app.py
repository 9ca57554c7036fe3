"""The application: middleware, error handlers and routers over services."""

from functools import cache

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from antiphon.version import __version__
from api.assemblyai import recordings as assemblyai_recordings
from api.assemblyai import streams as assemblyai
from api.assemblyai.streams import ASSEMBLYAI_ERRORS
from api.cartesia import routes as cartesia
from api.cartesia import transcription as cartesia_transcription
from api.cartesia import voices as cartesia_voices
from api.cartesia.routes import CARTESIA_ERRORS
from api.console import routes as console
from api.deepgram import account as deepgram_account
from api.deepgram import recordings as deepgram_recordings
from api.deepgram import speech as deepgram_speech
from api.deepgram import spoken_turns as deepgram_turns
from api.deepgram import streams as deepgram_streams
from api.deepgram.options import DEEPGRAM_ERRORS
from api.elevenlabs import account as elevenlabs_account
from api.elevenlabs import alignment as elevenlabs_alignment
from api.elevenlabs import dialogue as elevenlabs_dialogue
from api.elevenlabs import dialogue_streams as elevenlabs_dialogues
from api.elevenlabs import dictionaries as elevenlabs_dictionaries
from api.elevenlabs import history as elevenlabs_history
from api.elevenlabs import recordings as elevenlabs_recordings
from api.elevenlabs import speech as elevenlabs_speech
from api.elevenlabs import streams as elevenlabs_streams
from api.elevenlabs import voice_changer as elevenlabs_changer
from api.elevenlabs import voices as elevenlabs_voices
from api.elevenlabs.options import ELEVENLABS_ERRORS
from api.guide import routes as guide
from api.http.errors import CODED, on_client_left, on_error, on_http_error
from api.http.middleware import RequestFrame
from api.http.openapi import truthful_openapi
from api.inworld import routes as inworld
from api.mcp import routes as mcp
from api.native import (
    accounts,
    billing,
    files,
    health,
    jobs,
    models,
    operator,
    pronunciations,
    speech,
    transcription,
    webhooks,
)
from api.native.chat import completions, saved_chats
from api.native.voices import custom, library, reports
from api.openai import completions as text_completions
from api.openai import embeddings
from api.openai import models as openai_models
from api.openai import speech as openai_speech
from api.openai import transcription as openai_transcription
from api.openai import voices as openai_voices
from api.openai.batches import routes as batches
from api.openai.realtime import client_secrets
from api.openai.realtime import conversation as realtime
from api.openai.realtime.calls import routes as calls
from api.openai.responses import routes as responses
from api.openai.responses import socket as responses_socket
from api.reference import routes as reference
from api.services import Services
from api.sockets.kernel.routes import unknown_sockets
from api.sockets.stt import conversation as stt_socket
from api.sockets.tts import conversation as tts_socket
from api.telephony import twilio
from configs.settings import BRAND
from telemetry.logs import redact_logs

LOCAL_PAGES = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"


def create_app(services: Services, *, sees_clients: bool = True) -> FastAPI:
    """Builds the HTTP application over `services`; a process may have several applications. Set
    `sees_clients` to False behind a proxy, since all requests then come from its address."""
    redact_logs()
    app = routed_app()
    app.state.services = services
    app.state.sees_clients = sees_clients
    app.add_middleware(RequestFrame, admission=services.infrastructure.admission)
    # Added last, so it is the outermost: error responses get the headers, too.
    settings = services.infrastructure.settings
    if settings.cors_origins or settings.admits_local_pages:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_origin_regex=LOCAL_PAGES if settings.admits_local_pages else None,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,  # Chromium asks before a page calls a private address
            expose_headers=["*", "Authorization"],
            max_age=7200,
        )
    return app


def routed_app() -> FastAPI:
    """Builds the application's routes, error handlers and OpenAPI document, without services."""
    app = FastAPI(
        title=BRAND,
        version=__version__,
        summary="Text to speech, speech to text and chat",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for error in (*CODED, RequestValidationError):
        app.add_exception_handler(error, on_error)
    app.add_exception_handler(ClientDisconnect, on_client_left)
    app.add_exception_handler(HTTPException, on_http_error)
    # Routes are matched in order, so the busiest come first.
    busiest = (health, speech, openai_speech, inworld, deepgram_speech, deepgram_recordings)
    busy = (elevenlabs_speech, elevenlabs_recordings, cartesia, completions, responses)
    listening = (transcription, openai_transcription, cartesia_transcription)
    lists = (billing, models, openai_models, elevenlabs_account)  # precede Deepgram's /v1/models
    elevenlabs_work = (elevenlabs_dialogue, elevenlabs_changer, elevenlabs_alignment)
    elevenlabs_kept = (elevenlabs_voices, elevenlabs_dictionaries, elevenlabs_history)
    other_dialects = (deepgram_account, assemblyai, assemblyai_recordings, cartesia_voices)
    voices = (custom, library, reports)
    openai = (embeddings, text_completions, openai_voices)
    last = (batches, files, saved_chats, pronunciations, accounts, client_secrets, calls, webhooks)
    seldom_used = (*elevenlabs_work, *elevenlabs_kept, *other_dialects, *voices, jobs, *openai)
    for module in (*busiest, *busy, *listening, *lists, *seldom_used, *last, operator, mcp):
        for router in getattr(module, "routers", None) or (module.router,):
            # `include_router` would match every path twice.
            app.router.routes.extend(router.routes)
    pages = (console, guide, reference)
    deepgram = (deepgram_streams, deepgram_speech, deepgram_turns)
    elevenlabs = (elevenlabs_streams, elevenlabs_dialogues, elevenlabs_recordings)
    dialects = (inworld, *deepgram, *elevenlabs, cartesia, cartesia_transcription, assemblyai)
    sockets = (tts_socket, stt_socket, realtime, responses_socket, twilio, *dialects)
    for module in (*sockets, *pages, health):
        app.router.routes.extend(module.routes)
    error_dialects = (DEEPGRAM_ERRORS, ELEVENLABS_ERRORS, CARTESIA_ERRORS, ASSEMBLYAI_ERRORS)
    app.state.dialects = (*error_dialects, mcp.MCP_ERRORS)
    # Assigning to the method is FastAPI's documented way to customise its document.
    app.openapi = cache(lambda: truthful_openapi(app))  # type: ignore[method-assign]
    app.router.routes.append(unknown_sockets())
    return app
