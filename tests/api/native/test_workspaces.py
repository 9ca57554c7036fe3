"""Settings, audit log and erasure of a workspace over HTTP."""

from pathlib import Path

import httpx
import pytest

from api.services import Services
from configs.settings import Settings
from db.audit import audit_chain, first_break

Headers = dict[str, str]

CANARY = "canary-pelican-4711"


async def _actions(client: httpx.AsyncClient, headers: Headers) -> list[str]:
    answer = await client.get("/audit", headers=headers)
    assert answer.status_code == 200, answer.text
    return [entry["action"] for entry in answer.json()["data"]]


async def test_key_and_profile_changes_are_in_the_audit_log_without_values(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = await client.post("/developer/api", headers=auth, json={"name": "a", "scopes": ["tts"]})
    key_id = made.json()["id"]
    await client.delete(f"/developer/api/{key_id}", headers=auth)
    await client.put("/auth/profile", headers=auth, json={"name": CANARY})
    answer = (await client.get("/audit", headers=auth)).json()
    actions = ["profile.changed", "key.deleted", "key.created", "key.created", "account.created"]
    assert [entry["action"] for entry in answer["data"]] == actions
    assert answer["data"][0]["details"] == {"changed": ["name"]}
    created = answer["data"][2]
    assert (created["target"], created["details"]) == (key_id, {"scopes": ["tts"]})
    assert created["actor"].startswith("key:")
    assert answer["pagination"] == {"page": 1, "limit": 20, "total": 5, "pages": 1}
    assert CANARY not in str(answer)
    workspace = (await client.get("/auth/workspace", headers=auth)).json()
    chain = await services.infrastructure.database.read(audit_chain, int(workspace["id"]))
    assert first_break(chain) is None


async def test_an_unchanged_profile_is_not_in_the_audit_log(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    before = await _actions(client, auth)
    profile = (await client.get("/auth/profile", headers=auth)).json()
    same = {"name": profile["name"], "company": profile["company"]}
    assert (await client.put("/auth/profile", headers=auth, json=same)).status_code == 200
    assert await _actions(client, auth) == before


async def test_a_failed_key_deletion_is_not_in_the_audit_log(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    before = await _actions(client, auth)
    assert (await client.delete("/developer/api/1", headers=auth)).status_code == 404
    assert await _actions(client, auth) == before


async def test_settings_apply_to_the_next_request(client: httpx.AsyncClient, auth: Headers) -> None:
    assert (await client.get("/auth/workspace", headers=auth)).json()["retention"] == "standard"
    body = {"retention": "zero", "name": "Quiet"}
    changed = await client.put("/auth/workspace", headers=auth, json=body)
    assert changed.status_code == 200, changed.text
    assert changed.json() == (await client.get("/auth/workspace", headers=auth)).json()
    assert (changed.json()["retention"], changed.json()["name"]) == ("zero", "Quiet")
    assert (await _actions(client, auth))[0] == "workspace.changed"


@pytest.mark.parametrize("body", [{"retention": "none"}, {"name": ""}, {"retention": 1}])
async def test_invalid_settings_are_refused(
    client: httpx.AsyncClient, auth: Headers, body: dict[str, object]
) -> None:
    answer = await client.put("/auth/workspace", headers=auth, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_erasing_an_account_removes_all_its_data_from_disk(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    settings: Settings,
    tmp_path: Path,
) -> None:
    person = {
        "email": f"{CANARY}@example.com",
        "password": f"lantern gravel {CANARY}",
        "company": CANARY,
    }
    token = (await client.post("/auth/signup", json=person)).json()["token"]
    mine = {"Authorization": f"Bearer {token}"}
    workspace_id = int((await client.get("/auth/workspace", headers=mine)).json()["id"])
    key = await client.post("/developer/api", headers=mine, json={"name": CANARY})
    chat = {"messages": [{"role": "user", "content": CANARY}], "stream": False}
    said = await client.post(
        "/v1/chat/completions", headers={**mine, "Idempotency-Key": "once"}, json=chat
    )
    assert said.status_code == 200, said.text
    hook = {"url": f"https://{CANARY}.example.com/", "events": ["tts.completed"]}
    await client.post("/webhooks", headers=mine, json=hook)
    sound = CANARY.encode() * 100
    await services.infrastructure.files.put(workspace_id, "speech", "audio/mpeg", sound, 3600)

    assert (await client.delete("/auth/account", headers=mine)).status_code == 200

    for credential in (token, key.json()["key"]):
        gone = await client.get("/plans", headers={"Authorization": f"Bearer {credential}"})
        assert gone.status_code == 401
    chain = await services.infrastructure.database.read(audit_chain, workspace_id)
    assert [entry.action for entry in chain][-1] == "account.erased"
    assert (await client.get("/plans", headers=auth)).status_code == 200
    left = [
        path.name
        for path in tmp_path.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert left == []
    again = await client.post("/auth/signup", json=person)
    assert again.status_code == 201
