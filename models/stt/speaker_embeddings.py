"""Speaker embeddings of speech that an engine has just transcribed."""

from dataclasses import replace

from models.speaker.base import SpeakerEncoder
from models.stt.base import Transcript, TranscriptionRequest


def add_voices(
    request: TranscriptionRequest, transcript: Transcript, encoder: SpeakerEncoder
) -> Transcript:
    """The transcript with the voices of the windows asked for; blocking.

    They are made where the speech is transcribed, so that it travels once and waits once. Where
    nothing was said, there are none.
    """
    if not transcript.segments:
        return transcript
    return replace(transcript, voices=encoder.embed_pieces(request.pcm, request.voice_windows))
