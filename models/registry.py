"""Engine names and where each lives; a module is imported only when its engine is chosen."""

from importlib import import_module
from typing import Any

from models.errors import UnknownEngine, UnsupportedFeature

TTS_ENGINES = {
    "hibari": "models.tts.hibari:HibariEngine",
    "kokoro": "models.tts.kokoro.engine:KokoroEngine",
    "espeak": "models.tts.espeak.engine:EspeakEngine",
    "vits": "models.tts.piper:VitsEngine",
    "csm": "models.tts.csm.engine:CsmEngine",
    "mms": "models.tts.mms:MmsEngine",
    "tone": "models.tts.tone:ToneEngine",
}
STT_ENGINES = {
    "whisper": "models.stt.whisper.engine:WhisperEngine",
    "whisper_transformers": "models.stt.whisper_transformers.engine:TransformersWhisperEngine",
    "scripted": "models.stt.scripted:ScriptedEngine",
}
CHAT_ENGINES = {
    "llama_cpp": "models.llm.llama_cpp.engine:LlamaCppEngine",
    "transformers": "models.llm.transformers.engine:TransformersEngine",
    "echo": "models.llm.echo:EchoEngine",
}
VAD_ENGINES = {
    "silero": "models.vad.silero:SileroEngine",
    "webrtc": "models.vad.webrtc:WebRtcEngine",
}
SPEAKER_ENGINES = {
    "resemblyzer": "models.speaker.resemblyzer:ResemblyzerEngine",
    "bands": "models.speaker.bands:BandsEngine",
}
WATERMARK_ENGINES = {
    "perth": "models.watermark.perth:PerthWatermark",
}
GRAMMAR_ENGINES = {
    "harper": "models.grammar_check.harper:HarperEngine",
}
QUALITY_ENGINES = {
    "dnsmos": "models.quality.dnsmos:DnsmosEngine",
}


def engine_class(engines: dict[str, str], name: str) -> Any:
    """The class of the engine `name`; every engine is built as `cls(config, weights)`.

    Raises UnknownEngine, which lists the names there are, or UnsupportedFeature when a library of
    the engine's profile is not installed.
    """
    try:
        module, _, attribute = engines[name].partition(":")
    except KeyError:
        raise UnknownEngine(f"no engine {name!r}; available: {', '.join(engines)}") from None
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "models":
            raise  # one of ours, which is no matter of what is installed
        raise UnsupportedFeature(
            f"the engine {name!r} needs {error.name!r} of the GPU profile, which is not installed"
        ) from error
