"""The errors that engines raise. They cross processes, so one message is all they carry."""


class EngineError(Exception):
    """An engine could not do its work; the base of the tree."""

    code = "internal_error"
    retryable = False

    def __init_subclass__(cls, code: str | None = None, retryable: bool | None = None) -> None:
        cls.code = code or cls.code
        cls.retryable = cls.retryable if retryable is None else retryable


class EngineOverloaded(EngineError, code="overloaded", retryable=True):
    """Every replica is busy and the queue is full."""


class EngineLost(EngineError, code="unavailable", retryable=True):
    """The replica died or is not up while the request was with it."""


class PackMissing(EngineError, code="unavailable", retryable=True):
    """The engine does not have the voice pack of that digest; ask again, with the pack."""


class WeightsMissing(EngineError):
    """A weight file is not in the cache; `make weights` fetches it."""


class WeightsCorrupt(EngineError):
    """A weight file does not have the size or SHA-256 that the catalogue states."""


class UnknownEngine(EngineError):
    """The registry has no engine of that name."""


class InvalidEngineRequest(EngineError, code="validation_error"):
    """The caller asked for something that this engine cannot do."""


class UnknownVoice(InvalidEngineRequest, code="voice_not_found"):
    """The engine has no voice of that key."""


class UnsupportedLanguage(InvalidEngineRequest):
    """The engine does not know that language."""


class ContextLengthExceeded(InvalidEngineRequest, code="context_length_exceeded"):
    """The prompt does not fit the context of the language model."""


class UnsupportedFeature(InvalidEngineRequest):
    """The engine lacks a feature that the request needs."""
