"""Custom voices that have the names of vendors' voices."""

from typing import Any

import httpx
import pytest

from api.services import Services
from pipelines.text.chunking import TextChunk
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from tests.api.native.voices.test_sharing import offer, workspace_of
from tests.api.native.voices.voice_making import create, finish
from tests.api.test_stand_in_voices import RACHEL, elevenlabs, inworld, openai

Headers = dict[str, str]
TEXT = "Good morning."
REQUESTS = {
    "alloy": openai(TEXT, "alloy"),
    "aura-2-thalia-en": ("/v1/speak?model=aura-2-thalia-en", {"text": TEXT}),
    RACHEL: elevenlabs(TEXT),
    "Ashley": inworld(TEXT),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_only_an_own_voice_takes_the_name_of_a_vendors_voice(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    voice = await create(client, auth, name=name, consent="She agreed, to sharing too.")
    await finish(services)
    theirs = await workspace_of(client, other_auth)
    share = (await offer(client, auth, voice["id"], workspace_id=theirs)).json()["id"]
    accepted = await client.post(f"/voice-shares/{share}/accept", headers=other_auth)
    assert accepted.status_code == 200, accepted.text
    voices: list[str] = []
    call = SpeechPipeline._call

    def record(self: SpeechPipeline, plan: SpeechPlan, chunk: TextChunk, *more: Any) -> Any:
        voices.append(plan.passages[chunk.passage].voice.id)
        return call(self, plan, chunk, *more)

    monkeypatch.setattr(SpeechPipeline, "_call", record)
    path, body = REQUESTS[name]
    for headers, is_owner in ((auth, True), (other_auth, False)):
        voices.clear()
        key = {"X-API-Key": headers["Authorization"].split()[1]}
        answer = await client.post(path, json=body, headers={**headers, **key})
        assert answer.status_code == 200, answer.text
        assert (set(voices) == {voice["id"]}) is is_owner and voices
