"""What a workspace owns on OpenAI's paths: responses, their items, batches with their files, and
consent recordings."""

from typing import Any
from uuid import uuid4

import httpx
from sqlmodel import col, update

from api.services import Services
from db.accounts import Workspace
from db.voices.voices import VoiceConsent
from tests.api.money import principal_of

RESPONSES, BATCHES = "/openai/v1/responses", "/openai/v1/batches"
CONSENTS = "/openai/v1/audio/voice_consents"
LISTS = {BATCHES, "/openai/v1/files", CONSENTS}
IN_BODIES = {
    "previous_response_id": [RESPONSES, f"{RESPONSES}/input_tokens"],
    "input[].id": [RESPONSES, f"{RESPONSES}/input_tokens"],
    "input_file_id": [BATCHES],
}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", RESPONSES): {"input": "Hi."},
    ("POST", f"{RESPONSES}/input_tokens"): {"input": "Hi."},
    ("POST", f"{CONSENTS}/{{consent_id}}"): {"name": "Ann"},
    ("POST", BATCHES): {"endpoint": "/v1/responses", "completion_window": "24h"},
}
UNKNOWN = {
    **dict.fromkeys(("response_id", "previous_response_id"), f"resp_{'0' * 48}"),
    "input[].id": f"msg_{'0' * 48}",
    "batch_id": f"batch_{'0' * 32}",
    "consent_id": str(uuid4()),
    **dict.fromkeys(("batch_file_id", "input_file_id"), f"file-{'0' * 32}"),
}


async def make(
    client: httpx.AsyncClient, headers: dict[str, str], services: Services
) -> dict[str, str]:
    """One of each, by the name of its id."""
    principal = await principal_of(services, headers)
    more = update(Workspace).where(col(Workspace.id) == principal.workspace_id)
    plan = more.values(plan="enterprise")  # with room for the files
    await services.infrastructure.database.run(lambda rows: rows.connection().execute(plan))
    consent = VoiceConsent(
        id=uuid4(),
        workspace_id=principal.workspace_id,
        name="mine",
        language="en",
        phrase="I agree.",
        embedding=b"",
    )
    consent_id = str(consent.id)
    await services.infrastructure.database.run(lambda rows: rows.add(consent))
    response = (await client.post(RESPONSES, headers=headers, json={"input": "mine"})).json()
    files = []
    for _ in range(3):
        sent = {"file": ("lines.jsonl", b"{}")}
        form = {"purpose": "batch"}
        made = await client.post("/openai/v1/files", headers=headers, data=form, files=sent)
        files.append(made.json()["id"])
    begun = BODIES["POST", BATCHES] | {"input_file_id": files[0]}
    batch = (await client.post(BATCHES, headers=headers, json=begun)).json()
    return {
        "response_id": response["id"],
        "previous_response_id": response["id"],
        "input[].id": response["output"][0]["id"],
        "batch_id": batch["id"],
        "consent_id": consent_id,
        "batch_file_id": files[1],
        "input_file_id": files[2],
    }
