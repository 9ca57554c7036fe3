"""The errors that pipelines raise because of what the caller sent. `api` maps `code` to a status.

* PipelineError
  x VoiceNotFound
  x VoiceNotReady
  x ModelNotFound
  x InvalidAudio
  x AudioTooLong
  x FileTooLarge
  x InvalidRequest
  x DecoderBusy
"""


class PipelineError(Exception):
    """The request cannot be served; the message is for the caller."""

    code = "validation_error"


class VoiceNotFound(PipelineError):
    """No voice has that id or name."""

    code = "voice_not_found"


class VoiceNotReady(PipelineError):
    """The cloned voice is still processing, or failed."""

    code = "voice_not_ready"


class ModelNotFound(PipelineError):
    """No model has that id or alias."""

    code = "model_not_found"


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
