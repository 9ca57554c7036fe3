"""What the service offers, as Wyoming describes it: models of recognition and chat, and voices."""

from datetime import UTC, datetime
from typing import Any

from api.services import Services
from api.wyoming.framing import wyoming_event
from configs.settings import BRAND
from models.base import ModelKind
from models.errors import EngineError
from pipelines.ports import ListedModel
from pipelines.text.language_names import iso_code
from pipelines.tts.voices import AvailableVoice

VERSION = "1.0.0"  # of the service's interfaces


async def info_event(services: Services, workspace_id: int) -> bytes:
    """Programs without a model that is up are not offered. Raises DatabaseUnavailable."""
    url = services.infrastructure.settings.public_url
    listed = await services.infrastructure.models.models()
    try:
        voices = await services.speech.synthesis.pipeline.directory.voices(workspace_id)
    except EngineError:
        voices = []

    def program(does: str, key: str, artefacts: list[dict[str, Any]], **more: Any) -> list[Any]:
        about = _artefact(BRAND, BRAND, url, f"{does} of {BRAND}", VERSION)
        return [{**about, key: artefacts, **more}] if artefacts else []

    def models(kind: ModelKind) -> list[dict[str, Any]]:
        return [_model(one, url) for one in listed if one.info.kind == kind]

    return wyoming_event(
        "info",
        asr=program(
            "Speech recognition", "models", models("stt"), supports_transcript_streaming=True
        ),
        tts=program(
            "Speech synthesis",
            "voices",
            [_voice(one, url) for one in voices],
            supports_synthesize_streaming=True,
        ),
        handle=program("Chat", "models", models("chat"), supports_handled_streaming=True),
        intent=[],
        wake=[],
        mic=[],
        snd=[],
    )


def _artefact(
    name: str, maker: str, url: str, description: str, version: str, *, installed: bool = True
) -> dict[str, Any]:
    return {
        "name": name,
        "attribution": {"name": maker, "url": url},
        "installed": installed,
        "description": description,
        "version": version,
    }


def _model(listed: ListedModel, url: str) -> dict[str, Any]:
    info = listed.info
    version = datetime.fromtimestamp(info.created, UTC).date().isoformat()  # of its weights
    made = _artefact(
        info.id,
        info.owned_by,
        f"{url}/models/{info.id}",
        f"{info.id} ({info.engine})",
        version,
        installed=listed.status != "unavailable",
    )
    return {**made, "languages": [iso_code(code) for code in info.languages]}


def _voice(one: AvailableVoice, url: str) -> dict[str, Any]:
    """Named by its id, since names are not unique; clients show the description."""
    voice, model = one.voice, one.model
    traits = ", ".join(filter(None, (voice.accent, voice.gender, model.tier)))
    version = datetime.fromtimestamp(model.created, UTC).date().isoformat()
    made = _artefact(
        voice.voice_id,
        model.owned_by,
        f"{url}/models/{model.id}",
        f"{voice.name} ({traits})",
        version,
    )
    return {**made, "languages": [voice.language], "speakers": None}
