"""Engines without weights, configured as an engine outside of the source tree is."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TONE, TONE_LOW, TONE_SLOW, SCRIPTED, SCRIPTED_SLOW, ECHO, ECHO_SLOW = (
    str(FOLDER / f"{name}.yaml")
    for name in ("tone", "tone_low", "tone_slow", "scripted", "scripted_slow", "echo", "echo_slow")
)
UPSTREAM, UPSTREAM_STT, UPSTREAM_TTS = (
    str(FOLDER / f"{name}.yaml") for name in ("upstream", "upstream_stt", "upstream_tts")
)
LETTERS = str(FOLDER / "letters.yaml")
CONFIGURATIONS = {
    "tts": (TONE, TONE_LOW, TONE_SLOW, UPSTREAM_TTS),
    "stt": (SCRIPTED, SCRIPTED_SLOW, UPSTREAM_STT),
    "chat": (ECHO, ECHO_SLOW, UPSTREAM),
    "embedding": (LETTERS,),
}
"""Those of each kind."""
TONE_ENGINE = "tests.engines.tone:ToneEngine"
