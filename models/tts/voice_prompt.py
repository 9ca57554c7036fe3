"""Voice prompts: packs with a recording, perhaps with its transcript, which an engine continues in
the same voice. They are sent like other packs (`models.tts.voice_pack`) but have a format of their
own, so that an engine refuses a pack of another kind."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from models.audio import Pcm, float_to_pcm16, pcm16_to_float
from models.base import PackKind
from models.errors import WeightsCorrupt
from models.tts.voice_pack import open_pack, read_pack

PROMPT_SAMPLE_RATE = 24_000  # Hz
MIN_PROMPT_S, MAX_PROMPT_S = 1.0, 20.0
MAX_TRANSCRIPT = 1000  # characters


@dataclass(frozen=True, slots=True)
class VoicePrompt:
    """Some seconds of a person's speech."""

    pcm: Pcm  # float32 [n] at PROMPT_SAMPLE_RATE
    transcript: str  # text of the whole recording; "" if its words are not known
    language: str  # ISO 639-1 code


def write_prompt(prompt: VoicePrompt) -> bytes:
    """Serialises a prompt, deterministically, to 48 kB per second."""
    target = io.BytesIO()
    np.savez(
        target,
        prompt=np.frombuffer(float_to_pcm16(prompt.pcm), "<i2"),
        transcript=np.array(prompt.transcript),
        language=np.array(prompt.language),
    )
    return target.getvalue()


def read_prompt(data: bytes, *, transcribed: bool = False) -> VoicePrompt:
    """Deserialises a prompt, with its transcript if `transcribed`. Raises WeightsCorrupt."""
    with open_pack(data, "prompt") as parts:
        pcm, transcript, language = (parts[name] for name in ("prompt", "transcript", "language"))
    if pcm.dtype != np.int16 or pcm.ndim != 1:
        raise WeightsCorrupt("the recording of the voice pack is not mono int16")
    if not MIN_PROMPT_S <= len(pcm) / PROMPT_SAMPLE_RATE <= MAX_PROMPT_S:
        raise WeightsCorrupt(
            f"the recording of the voice pack is not {MIN_PROMPT_S:g} to {MAX_PROMPT_S:g} s long"
        )
    if any(text.dtype.kind != "U" or text.ndim for text in (transcript, language)):
        raise WeightsCorrupt("the voice pack's transcript or language is not text")
    words = str(transcript).strip()
    if len(words) > MAX_TRANSCRIPT:
        raise WeightsCorrupt(f"the voice pack's transcript is over {MAX_TRANSCRIPT} characters")
    if transcribed and not words:
        raise WeightsCorrupt("the voice pack has no transcript of its recording")
    return VoicePrompt(pcm16_to_float(pcm.tobytes()), words, str(language))


READERS: dict[PackKind, Callable[[bytes], object]] = {
    "style": read_pack,
    "recording": read_prompt,
    "transcribed recording": partial(read_prompt, transcribed=True),
}
"""Readers of the kinds of packs that engines declare. Each raises WeightsCorrupt."""
