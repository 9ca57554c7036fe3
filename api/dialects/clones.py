"""Custom voices that a dialect creates from few or long recordings, such as a single clip."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeAlias

from fastapi import Request

from api.http.errors import CODED, ApiError, to_api_error
from api.http.streaming import while_connected
from api.http.uploads import MultipartForm, UploadLimits, receive_form
from api.native.voices.custom import files_of, sample_file
from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from pipelines.accounts.authentication import Principal
from pipelines.billing.operation import Operation
from pipelines.voices.service import CustomVoices
from pipelines.voices.voice_object import CustomVoice, NewVoice, custom_voice

RULES = load_yaml(CustomVoicesConfig, "custom_voices").clips
LEAST = f"Recordings of one speaker, together at least {RULES.min_total_seconds:g} seconds."
FILES = "files"  # what `POST /voices` calls the recordings

Create: TypeAlias = Callable[[NewVoice], Awaitable[CustomVoice]]
"""Creates a voice from received recordings, by the rules for clips."""


@asynccontextmanager
async def receive_clips(
    request: Request,
    principal: Principal,
    custom: CustomVoices,
    operation: Operation,
    field: str = FILES,
) -> AsyncIterator[tuple[MultipartForm, Create]]:
    """Receives a form with recordings: one in `field`, or up to `max_files` in FILES. Raises
    ApiError or the errors of the checks, which then name `field`."""
    most = RULES.max_files if field == FILES else 1
    check_room = partial(custom.check_room, principal, operation)
    async with receive_form(request, UploadLimits(max_files=most), check_room) as form:

        async def create(new: NewVoice) -> CustomVoice:
            with errors_naming(field):
                is_list = field == FILES
                files = files_of(form, 1, most) if is_list else [sample_file(form.file(field))]
                work = custom.create(principal, new, files, operation, are_clips=True)
                return custom_voice(await while_connected(request.receive, work))

        yield form, create


@contextmanager
def errors_naming(field: str) -> Iterator[None]:
    """Names `field` in errors about recordings, which the pipelines call FILES."""
    try:
        yield
    except CODED as error:
        api_error = to_api_error(error)
        if field == FILES or not api_error.message.startswith(f"{FILES}: "):
            raise
        message = field + api_error.message.removeprefix(FILES)
        raise ApiError(api_error.code, message, param=field) from None
