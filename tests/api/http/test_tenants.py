"""Isolation of tenants: on every route, data of one workspace does not exist for another."""

import re
from typing import Any, cast
from uuid import uuid4

import httpx

from api.app import routed_app
from api.services import Services
from db.sessions import begin_session
from pipelines.accounts.service import Origin, new_session
from tests.api.native.voices import voice_making

Headers = dict[str, str]
Ids = dict[str, str]
Operation = tuple[str, str]  # method and path

CHAT = "/v1/chat/completions"
PLATFORM_IDS = {"model_id", "plan_id"}  # not owned by a workspace
SIGNED_IDS = {"file_id"}  # the signed address is the credential; tests of files try other addresses
UNKNOWN_IDS: Ids = {
    **dict.fromkeys(
        ("chat_id", "voice_id", "webhook_id", "delivery_id", "session_id"), str(uuid4())
    ),
    "key_id": "1",
}
IN_BODIES: dict[str, list[Operation]] = {
    "chat_id": [("POST", CHAT), ("POST", f"/openai{CHAT}")],
    "voice_id": [("POST", "/tts-synthesize")],  # /tts-stream reports it in a line: own tests
}
BODIES: dict[Operation, dict[str, Any]] = {
    ("PATCH", "/webhooks/{webhook_id}"): {"events": ["tts.failed"]},
    **{
        operation: {"messages": [{"role": "user", "content": "hi"}], "stream": False}
        for operation in IN_BODIES["chat_id"]
    },
    ("POST", "/tts-synthesize"): {"text": "Hi."},
}
DOCUMENT = routed_app().openapi()
OPERATIONS: list[Operation] = [
    (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
]


def ids_in(path: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", path)) - PLATFORM_IDS - SIGNED_IDS


def operations_with_ids() -> list[Operation]:
    """Every operation that takes an id of a workspace; deletions last, nested resources first."""
    found = [one for one in OPERATIONS if ids_in(one[1])] + sum(IN_BODIES.values(), [])
    return sorted(found, key=lambda one: (one[0] == "DELETE", -len(ids_in(one[1])), one))


async def resources_of(client: httpx.AsyncClient, headers: Headers, services: Services) -> Ids:
    """Creates one of each resource that a workspace owns, and returns their ids."""

    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await client.post(path, headers=headers, json=body)
        assert answer.status_code in (200, 201), answer.text
        return cast(dict[str, Any], answer.json())

    messages = [{"role": "user", "content": "mine"}]
    chat = await post(CHAT, {"messages": messages, "stream": False})
    key = await post("/developer/api", {"name": "mine"})
    new = {"url": "https://example.com/hook", "events": ["tts.completed"]}
    webhook = (await post("/webhooks", new))["id"]
    delivery = await post(f"/webhooks/{webhook}/test", {})
    voice = await voice_making.create(client, headers)
    await voice_making.finish(services)
    accounts = services.platform.accounts
    credential = headers["Authorization"].removeprefix("Bearer ")
    principal = await accounts.authenticator.authenticate(credential)
    login = new_session(principal.user_id, Origin())
    await services.infrastructure.database.run(begin_session, login)
    return {
        "session_id": str(login.id),
        "chat_id": chat["chat_id"],
        "voice_id": voice["id"],
        "key_id": key["id"],
        "webhook_id": webhook,
        "delivery_id": delivery["id"],
    }


async def send(
    client: httpx.AsyncClient, headers: Headers, operation: Operation, ids: Ids
) -> httpx.Response:
    method, path = operation
    body = BODIES.get(operation)
    for name, operations in IN_BODIES.items():
        if operation in operations:
            body = {**(body or {}), name: ids[name]}
    return await client.request(method, path.format(**ids), headers=headers, json=body)


def test_every_id_parameter_of_the_api_is_covered_here() -> None:
    in_paths = {name for _, path in OPERATIONS for name in ids_in(path)}
    assert in_paths <= set(UNKNOWN_IDS), (
        f"make one in `resources_of`: {in_paths - set(UNKNOWN_IDS)}"
    )
    bodies = re.findall(
        r"#/components/schemas/(\w+)",
        str([one.get("requestBody") for ops in DOCUMENT["paths"].values() for one in ops.values()]),
    )
    schemas = DOCUMENT["components"]["schemas"]
    in_bodies = {name for body in bodies for name in schemas[body]["properties"]}
    unknown = {name for name in in_bodies if name.endswith("_id")} - PLATFORM_IDS - set(IN_BODIES)
    assert not unknown, f"try them in IN_BODIES: {unknown}"


async def test_ids_of_another_workspace_are_answered_like_ids_that_do_not_exist(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    mine = await resources_of(client, auth, services)
    for operation in operations_with_ids():
        theirs = await send(client, other_auth, operation, mine)
        never = await send(client, other_auth, operation, UNKNOWN_IDS)
        assert theirs.status_code == 404, operation
        assert (never.status_code, never.json()) == (404, theirs.json()), operation
    for operation in operations_with_ids():
        assert (await send(client, auth, operation, mine)).status_code == 200, operation


async def test_list_routes_show_only_data_of_the_callers_workspace(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    mine = set((await resources_of(client, auth, services)).values())
    theirs = set((await resources_of(client, other_auth, services)).values())
    seen = set()
    for method, path in OPERATIONS:
        if method != "GET" or "{" in path:
            continue
        for headers, own, foreign in ((auth, mine, theirs), (other_auth, theirs, mine)):
            text = (await client.get(path, headers=headers)).text
            assert not [one for one in foreign if one in text], path
            seen |= {path for one in own if one in text}
    assert seen == {
        "/auth/sessions",
        "/chats",
        "/developer/api",
        "/webhooks",
        "/audit",
        "/voices",
        "/default-voices",
        "/tts/v1/voices",
    }


async def test_a_token_reads_and_changes_only_its_own_profile(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    answer = await client.put("/auth/profile", headers=other_auth, json={"name": "Other"})
    assert answer.json()["name"] == "Other"
    mine = await client.put("/auth/profile", headers=auth, json={})
    assert mine.json()["id"] != answer.json()["id"] and mine.json()["name"] == "Owner"
