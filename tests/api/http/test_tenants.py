"""What belongs to one workspace does not exist for another, on every route that there is."""

import re
from typing import Any, cast
from uuid import uuid4

import httpx

from api.app import routed_app
from api.services import Services
from tests.api.native.voices import voice_making

Headers = dict[str, str]
Ids = dict[str, str]
Operation = tuple[str, str]  # method and path

CHAT = "/v1/chat/completions"
OF_THE_PLATFORM = {"model_id", "plan_id"}  # ids of what the platform offers
SIGNED = {"file_id"}  # the signed address is the credential; tests of files try other addresses
NEVER: Ids = {
    **dict.fromkeys(("chat_id", "voice_id", "webhook_id", "delivery_id"), str(uuid4())),
    "key_id": "1",
}
IN_BODIES: dict[str, list[Operation]] = {
    "chat_id": [("POST", CHAT), ("POST", f"/openai{CHAT}")],
    "voice_id": [("POST", "/tts-synthesize")],  # /tts-stream says it in a line: its own tests
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
    return set(re.findall(r"{(\w+)}", path)) - OF_THE_PLATFORM - SIGNED


def tries() -> list[Operation]:
    """Every operation that takes an id of a workspace; what deletes comes last, inside out."""
    found = [one for one in OPERATIONS if ids_in(one[1])] + sum(IN_BODIES.values(), [])
    return sorted(found, key=lambda one: (one[0] == "DELETE", -len(ids_in(one[1])), one))


async def belongings(client: httpx.AsyncClient, headers: Headers, services: Services) -> Ids:
    """The ids of one of each thing that a workspace can have."""

    async def made(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await client.post(path, headers=headers, json=body)
        assert answer.status_code in (200, 201), answer.text
        return cast(dict[str, Any], answer.json())

    messages = [{"role": "user", "content": "mine"}]
    chat = await made(CHAT, {"messages": messages, "stream": False})
    key = await made("/developer/api", {"name": "mine"})
    new = {"url": "https://example.com/hook", "events": ["tts.completed"]}
    webhook = (await made("/webhooks", new))["id"]
    delivery = await made(f"/webhooks/{webhook}/test", {})
    voice = await voice_making.made(client, headers)
    await voice_making.finish(services)
    return {
        "chat_id": chat["chat_id"],
        "voice_id": voice["id"],
        "key_id": key["id"],
        "webhook_id": webhook,
        "delivery_id": delivery["id"],
    }


async def attempt(
    client: httpx.AsyncClient, headers: Headers, operation: Operation, ids: Ids
) -> httpx.Response:
    method, path = operation
    body = BODIES.get(operation)
    for name, operations in IN_BODIES.items():
        if operation in operations:
            body = {**(body or {}), name: ids[name]}
    return await client.request(method, path.format(**ids), headers=headers, json=body)


def test_every_id_that_a_request_takes_is_tried_here() -> None:
    in_paths = {name for _, path in OPERATIONS for name in ids_in(path)}
    assert in_paths <= set(NEVER), f"make one in `belongings`: {in_paths - set(NEVER)}"
    bodies = re.findall(
        r"#/components/schemas/(\w+)",
        str([one.get("requestBody") for ops in DOCUMENT["paths"].values() for one in ops.values()]),
    )
    schemas = DOCUMENT["components"]["schemas"]
    in_bodies = {name for body in bodies for name in schemas[body]["properties"]}
    unknown = (
        {name for name in in_bodies if name.endswith("_id")} - OF_THE_PLATFORM - set(IN_BODIES)
    )
    assert not unknown, f"try them in IN_BODIES: {unknown}"


async def test_a_strangers_answer_is_that_of_an_id_that_never_was(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    mine = await belongings(client, auth, services)
    for operation in tries():
        theirs = await attempt(client, other_auth, operation, mine)
        never = await attempt(client, other_auth, operation, NEVER)
        assert theirs.status_code == 404, operation
        assert (never.status_code, never.json()) == (404, theirs.json()), operation
    for operation in tries():
        assert (await attempt(client, auth, operation, mine)).status_code == 200, operation


async def test_lists_hold_only_what_is_the_workspaces_own(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    mine = set((await belongings(client, auth, services)).values())
    theirs = set((await belongings(client, other_auth, services)).values())
    seen = set()
    for method, path in OPERATIONS:
        if method != "GET" or "{" in path:
            continue
        for headers, own, foreign in ((auth, mine, theirs), (other_auth, theirs, mine)):
            text = (await client.get(path, headers=headers)).text
            assert not [one for one in foreign if one in text], path
            seen |= {path for one in own if one in text}
    assert seen == {
        "/chats",
        "/developer/api",
        "/webhooks",
        "/audit",
        "/voices",
        "/default-voices",
        "/tts/v1/voices",
    }


async def test_a_token_of_one_workspace_reads_its_own_profile_only(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    answer = await client.put("/auth/profile", headers=other_auth, json={"name": "Other"})
    assert answer.json()["name"] == "Other"
    mine = await client.put("/auth/profile", headers=auth, json={})
    assert mine.json()["id"] != answer.json()["id"] and mine.json()["name"] == "Owner"
