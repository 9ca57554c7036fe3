"""What the service offers, as Wyoming describes it: models of recognition and chat, and voices."""

from datetime import UTC, datetime
from typing import Any

from api.services import Services
from api.wyoming.events import wyoming_event
from configs.settings import BRAND
from models.base import ModelInfo
from models.errors import EngineError
from pipelines.text.language_names import iso_code

VERSION = "1.0.0"  # of the service's interfaces


async def info_event(services: Services, workspace_id: int) -> bytes:
    """Without programs that have no model. Raises DatabaseUnavailable."""
    url, models = services.infrastructure.settings.public_url, dict[str, list[dict[str, Any]]]()
    for one in await services.infrastructure.models.models():
        languages = [iso_code(code) for code in one.info.languages]
        about = _of_model(one.info, url, one.info.id, f"{one.info.id} ({one.info.engine})")
        about |= {"languages": languages, "installed": one.status != "unavailable"}
        models.setdefault(one.info.kind, []).append(about)
    try:
        voices = await services.speech.synthesis.pipeline.directory.voices(workspace_id)
    except EngineError:
        voices = []
    models["tts"] = []
    for available in voices:  # named by their ids, since names are not unique
        voice, tier = available.voice, available.model.tier
        traits = ", ".join(filter(None, (voice.accent, voice.gender, tier)))
        about = _of_model(available.model, url, voice.voice_id, f"{voice.name} ({traits})")
        models["tts"].append({**about, "languages": [voice.language], "speakers": None})

    def program(kind: str, does: str, **more: Any) -> list[dict[str, Any]]:
        about = _artefact(BRAND, BRAND, url, f"{does} of {BRAND}", VERSION)
        return [{**about, **more}] if models.get(kind) else []

    asr = {"models": models.get("stt"), "supports_transcript_streaming": True}
    tts = {"voices": models["tts"], "supports_synthesize_streaming": True}
    handle = {"models": models.get("chat"), "supports_handled_streaming": True}
    return wyoming_event(
        "info",
        asr=program("stt", "Speech recognition", **asr),
        tts=program("tts", "Speech synthesis", **tts),
        handle=program("chat", "Chat", **handle),
        **{name: [] for name in ("intent", "wake", "mic", "snd")},
    )


def _of_model(model: ModelInfo, url: str, name: str, description: str) -> dict[str, Any]:
    version = datetime.fromtimestamp(model.created, UTC).date().isoformat()  # of its weights
    return _artefact(name, model.owned_by, f"{url}/models/{model.id}", description, version)


def _artefact(name: str, maker: str, url: str, description: str, version: str) -> dict[str, Any]:
    attribution = {"name": maker, "url": url}
    about = {"name": name, "attribution": attribution, "installed": True}
    return {**about, "description": description, "version": version}
