"""The errors that engines raise. They cross processes, so one message is all they carry.

* EngineError
  x EngineOverloaded       (retryable)
  x EngineLost             (retryable)
  x PackMissing            (retryable)
  x WeightsMissing
  x WeightsCorrupt
  x UnknownEngine
  x InvalidEngineRequest
    + UnknownVoice
    + UnsupportedLanguage
    + ContextLengthExceeded
    + UnsupportedFeature
"""


class EngineError(Exception):
    """An engine could not do its work; the base of the tree."""

    code = "internal_error"
    retryable = False


class EngineOverloaded(EngineError):
    """Every replica is busy and the queue is full."""

    code = "overloaded"
    retryable = True


class EngineLost(EngineError):
    """The replica died or is not up while the request was with it."""

    code = "unavailable"
    retryable = True


class PackMissing(EngineError):
    """The engine does not have the voice pack of that digest; ask again, with the pack."""

    code = "unavailable"
    retryable = True


class WeightsMissing(EngineError):
    """A weight file is not in the cache; `make weights` fetches it."""


class WeightsCorrupt(EngineError):
    """A weight file does not have the size or SHA-256 that the catalogue states."""


class UnknownEngine(EngineError):
    """The registry has no engine of that name."""


class InvalidEngineRequest(EngineError):
    """The caller asked for something that this engine cannot do."""

    code = "validation_error"


class UnknownVoice(InvalidEngineRequest):
    """The engine has no voice of that key."""

    code = "voice_not_found"


class UnsupportedLanguage(InvalidEngineRequest):
    """The engine does not know that language."""


class ContextLengthExceeded(InvalidEngineRequest):
    """The prompt does not fit the context of the language model."""

    code = "context_length_exceeded"


class UnsupportedFeature(InvalidEngineRequest):
    """The engine lacks a feature that the request needs."""
