"""The errors that engines raise. Sent between processes, so they are built from a message alone."""

from typing import Self


class EngineError(Exception):
    """An engine failed; the base class of engine errors."""

    code = "internal_error"
    retryable = False
    retry_after_s: float | None = None  # when to retry, if known

    def with_retry_after(self, seconds: float | None) -> Self:
        """Sets how many seconds callers should wait before they retry."""
        self.retry_after_s = seconds
        return self

    def __init_subclass__(cls, code: str | None = None, retryable: bool | None = None) -> None:
        cls.code = code or cls.code
        cls.retryable = cls.retryable if retryable is None else retryable


class EngineOverloaded(EngineError, code="overloaded", retryable=True):
    """Every replica is busy and the queue is full."""


class OutOfMemory(EngineOverloaded):
    """The device has too little memory for the request beside those in progress."""


class EngineLost(EngineError, code="unavailable", retryable=True):
    """The replica died, or is not running, during the request."""


class DeviceFailed(EngineLost):
    """The device failed, and with it all requests of its process; Serve replaces the replica."""


class EngineStopped(EngineLost):
    """The service stops before the request ends. Delivered results are charged."""

    def __init__(self, text: str = "the service is stopping; send the request again soon") -> None:
        super().__init__(text)


class PackMissing(EngineError, code="unavailable", retryable=True):
    """The engine has not cached the voice pack of that digest; retry with the pack's bytes."""


class WeightsMissing(EngineError):
    """A weight file is not in the cache; `make weights` fetches it."""


class WeightsUnavailable(WeightsMissing):
    """A weight file is not in the cache, and no source gave it."""


class WeightsCorrupt(EngineError):
    """A weight file does not have the size or SHA-256 that the catalogue states."""


class SourceFailed(Exception):
    """A file of weights is not available from this source; another may have it."""


class ModelNotLoaded(EngineError, code="unavailable"):
    """A model cannot be loaded; the message has the cause and, if there is one, the remedy."""


class UnknownEngine(EngineError):
    """The registry has no engine of that name."""


class InvalidEngineRequest(EngineError, code="validation_error"):
    """The request is not valid for this engine."""


class UnknownVoice(InvalidEngineRequest, code="voice_not_found"):
    """The engine has no voice of that key."""


class UnsupportedLanguage(InvalidEngineRequest):
    """The engine does not support that language."""


class ContextLengthExceeded(InvalidEngineRequest, code="context_length_exceeded"):
    """The prompt does not fit the context of the language model."""


class UnsupportedFeature(InvalidEngineRequest):
    """The engine lacks a feature that the request needs."""
