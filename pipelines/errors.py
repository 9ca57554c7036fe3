"""The errors that pipelines raise for a request. `api` maps `code` to an HTTP status."""

from collections.abc import Sequence
from errno import EDQUOT, ENOSPC

from db.errors import DatabaseError, DatabaseUnavailable
from models.errors import EngineError, EngineLost, EngineOverloaded

INTERNAL_MESSAGE = "the service failed; its logs have the cause under the request id"
SERVICE_FAULTS = frozenset({"internal_error", "overloaded", "unavailable"})  # not the caller's
SHOWN_CHARACTERS = 200  # characters of a text that are shown
NO_SPACE = (ENOSPC, EDQUOT)  # the errors of a full disk


class PipelineError(Exception):
    """The request cannot be served; the message is for the caller."""

    code = "validation_error"
    message = ""  # default of errors with a fixed message

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.message)

    def __init_subclass__(cls, code: str | None = None) -> None:
        cls.code = code or cls.code


class VoiceNotFound(PipelineError, code="voice_not_found"):
    """No voice has that id or name."""


class VoiceNotReady(PipelineError, code="voice_not_ready"):
    """The voice is still in progress, or has failed."""


class PlanRequired(PipelineError, code="plan_required"):
    """The workspace's plan does not allow that; the message names what it allows."""


class StorageLimit(PipelineError, code="storage_limit"):
    """The workspace keeps as many bytes as its plan allows."""


class ModelNotFound(PipelineError, code="model_not_found"):
    """No model has that id or alias."""


class ChatNotFound(PipelineError, code="chat_not_found"):
    """The workspace has no chat of that id."""

    message = "no chat has that id; GET /chats lists them"


class InvalidAudio(PipelineError, code="invalid_audio"):
    """The upload is not audio of a known format, or cannot be decoded."""


class AudioTooLong(PipelineError, code="audio_too_long"):
    """The audio is longer than the limit."""


class FileTooLarge(PipelineError, code="file_too_large"):
    """The upload is larger than the limit."""


class InvalidRequest(PipelineError):
    """A field holds something that the service cannot use; the message names the field."""


class UnknownToolCall(InvalidRequest):
    """A tool result names no earlier call."""


class NothingToSpeak(InvalidRequest):
    """The text has no letter and no digit."""


class UnreadableText(NothingToSpeak, code="unsupported_language"):
    """No voice reads any letter of the text."""

    def __init__(self, message: str, unread: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unread = unread


class Overloaded(PipelineError, code="overloaded"):
    """A queue of the service is full; the message names what waits in it."""


class Unauthorized(PipelineError, code="unauthorized"):
    """The key, token or password is wrong, revoked or expired; the message does not say which."""


class WrongPassword(Unauthorized, code="validation_error"):
    """The current password is wrong. The token is valid, so the HTTP status is not 401."""


class SignUpClosed(PipelineError, code="sign_up_closed"):
    """The operator does not let users sign up."""

    message = "sign-up is closed; ask the operator of this service for an account"


class InvalidInvite(PipelineError, code="invalid_invite"):
    """Sign-up needs an invite, and there is none with that code for that address."""

    message = "invite: sign-up needs an unused invite of the operator for this e-mail address"


class PlanChangeRefused(PipelineError, code="plan_change_refused"):
    """Workspaces may not change plans themselves, or the payment system refused the change."""


class PaymentsUnavailable(PipelineError, code="unavailable"):
    """The operator's payment system does not answer."""

    message = "the payment system does not answer; the plan is unchanged"


class EmailTaken(PipelineError, code="email_taken"):
    """Another account has that e-mail address."""


class InsufficientScope(PipelineError, code="insufficient_scope"):
    """The key lacks a scope."""


class NotFound(PipelineError, code="not_found"):
    """The workspace has no such object."""


class TooManyUnknownKeys(PipelineError, code="rate_limited"):
    """The caller's address has tried too many keys that do not exist."""

    message = "too many unknown API keys came from this address; try again in a minute"


class TooManyClientSecrets(PipelineError, code="rate_limited"):
    """The workspace has as many live client secrets as it may."""


class InsufficientCredit(PipelineError, code="insufficient_credit"):
    """The workspace has less credit than the work may cost."""


class PlanNotFound(PipelineError, code="plan_not_found"):
    """No plan has that id."""


class StorageUnavailable(PipelineError, code="unavailable"):
    """The store of files is down or full."""


class InvalidUrl(PipelineError, code="invalid_url"):
    """The service does not send webhooks to that address; the message says why."""


class RequestRunning(PipelineError, code="idempotency_conflict"):
    """The first request with this Idempotency-Key has not been answered yet."""

    message = "the first request with this Idempotency-Key is still running"


class AnswerNotKept(PipelineError, code="idempotency_conflict"):
    """The request has succeeded before, and its response was not stored."""

    message = "this Idempotency-Key was used before, and its response was not stored"


MAY_PASS = (DatabaseUnavailable, StorageUnavailable, Overloaded, EngineLost, EngineOverloaded)
"""Failures of other processes, such as a database or a replica; another try may succeed."""


def public_error(error: Exception) -> tuple[str, str]:
    """Returns the code and the message that clients may see for an error of any layer."""
    if isinstance(error, EngineError | PipelineError | DatabaseError):
        if error.code != "internal_error":
            return error.code, str(error)
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return StorageUnavailable.code, "a disk of the service is full; try again later"
    return "internal_error", INTERNAL_MESSAGE


def may_pass(error: Exception) -> bool:
    """Whether failed work may succeed later, because what it needs is down, full or not up yet."""
    code, _ = public_error(error)
    return code in ("overloaded", "unavailable") or isinstance(error, TimeoutError)
