"""The errors that pipelines raise for a request. `api` maps `code` to a status.

* PipelineError
  x VoiceNotFound
  x VoiceNotReady
  x PlanRequired
  x ModelNotFound
  x ChatNotFound
  x InvalidAudio
  x AudioTooLong
  x FileTooLarge
  x InvalidRequest
  x DecoderBusy
  x Unauthorized
  x EmailTaken
  x InsufficientScope
  x NotFound
  x HashingBusy
  x InsufficientCredit
  x PlanNotFound
  x InvalidUrl
  x StorageUnavailable
  x RequestRunning
  x AnswerNotKept
"""

from db.errors import DatabaseError
from models.errors import EngineError

INTERNAL_MESSAGE = "the service failed; the request id finds the cause in its logs"
SERVICE_FAULTS = frozenset({"internal_error", "overloaded", "unavailable"})
"""Codes of failures that are not the caller's."""


class PipelineError(Exception):
    """The request cannot be served; the message is for the caller."""

    code = "validation_error"


class VoiceNotFound(PipelineError):
    """No voice has that id or name."""

    code = "voice_not_found"


class VoiceNotReady(PipelineError):
    """The voice is still being made, or could not be made."""

    code = "voice_not_ready"


class PlanRequired(PipelineError):
    """The workspace's plan does not allow that; the message names what it allows."""

    code = "plan_required"


class ModelNotFound(PipelineError):
    """No model has that id or alias."""

    code = "model_not_found"


class ChatNotFound(PipelineError):
    """The workspace has no chat of that id."""

    code = "chat_not_found"

    def __init__(self, message: str = "there is no chat of that id; GET /chats lists them") -> None:
        super().__init__(message)


class InvalidAudio(PipelineError):
    """The upload is not audio of a known format, or cannot be decoded."""

    code = "invalid_audio"


class AudioTooLong(PipelineError):
    """The audio is longer than the limit."""

    code = "audio_too_long"


class FileTooLarge(PipelineError):
    """The upload is larger than the limit."""

    code = "file_too_large"


class InvalidRequest(PipelineError):
    """A field holds something that the service cannot use; the message names the field."""


class DecoderBusy(PipelineError):
    """The queue of the audio decoder is full."""

    code = "overloaded"


class Unauthorized(PipelineError):
    """The key, token or password is wrong, revoked or expired; never says which."""

    code = "unauthorized"


class EmailTaken(PipelineError):
    """Another account has that e-mail address."""

    code = "email_taken"


class InsufficientScope(PipelineError):
    """The key may not do that."""

    code = "insufficient_scope"


class NotFound(PipelineError):
    """The workspace has no such object."""

    code = "not_found"


class HashingBusy(PipelineError):
    """The queue of the password hasher is full."""

    code = "overloaded"


class InsufficientCredit(PipelineError):
    """The workspace has less credit than the work may cost."""

    code = "insufficient_credit"


class PlanNotFound(PipelineError):
    """No plan has that id."""

    code = "plan_not_found"


class StorageUnavailable(PipelineError):
    """The store of files is down or full."""

    code = "unavailable"


class InvalidUrl(PipelineError):
    """The service does not send webhooks to that address; the message says why."""

    code = "invalid_url"


class RequestRunning(PipelineError):
    """The first request with this Idempotency-Key has not been answered yet."""

    code = "idempotency_conflict"

    def __init__(
        self, message: str = "the first request with this Idempotency-Key is still running"
    ) -> None:
        super().__init__(message)


class AnswerNotKept(PipelineError):
    """The request was done before, and its answer was not kept."""

    code = "idempotency_conflict"

    def __init__(
        self,
        message: str = "this Idempotency-Key was used before, and the answer was not kept",
    ) -> None:
        super().__init__(message)


def public_error(error: Exception) -> tuple[str, str]:
    """The code and the message that clients may see of an error of any layer."""
    if isinstance(error, EngineError | PipelineError | DatabaseError):
        if error.code != "internal_error":
            return error.code, str(error)
    return "internal_error", INTERNAL_MESSAGE
