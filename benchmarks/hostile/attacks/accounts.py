"""Attacks on accounts, keys and webhooks."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import trustme

from benchmarks.hostile.attacker import PASSWORD, Attacker, attack
from pipelines.accounts.authentication import new_api_key
from tests.pipelines.webhooks.receivers import Authority, Held, receiver


@attack("M8")
async def failed_logins(attacker: Attacker) -> None:
    """Wrong passwords for one account and for unknown ones, from 50 addresses, 20 at once."""
    await attacker.account()
    victim = attacker.emails[0]
    addresses = [attacker.new_address() for _ in range(50)]

    async def log_in(number: int) -> None:
        email = victim if number % 2 else f"{uuid4().hex}@example.com"
        body = {"email": email, "password": secrets.token_hex(8)}
        address = secrets.choice(addresses)
        await attacker.post("/auth/login", json=body, address=address)

    await attacker.many(20, log_in)


@attack("H6")
async def sign_up_storm(attacker: Attacker) -> None:
    """Sign-ups from 50 addresses, 20 at once, each with its free credit and the largest plan."""
    addresses = [attacker.new_address() for _ in range(50)]

    async def sign_up(_: int) -> None:
        body = {"email": f"{uuid4().hex}@example.com", "password": PASSWORD}
        address = secrets.choice(addresses)
        made = await attacker.post("/auth/signup", json=body, address=address)
        if made.status == 201:
            plan = {"plan_id": "enterprise"}
            await attacker.post("/billing/subscribe", made.json["token"], json=plan)

    await attacker.many(20, sign_up)


@attack("L7")
async def unknown_keys(attacker: Attacker) -> None:
    """Keys with a right checksum that were never issued, and forged tokens, 50 at once"""

    async def ask(number: int) -> None:
        key = new_api_key() if number % 5 else f"e30.{secrets.token_urlsafe(60)}.e30"
        await attacker.request("GET", "/plans", key)

    await attacker.many(50, ask)


@attack("M10")
async def hanging_receivers(attacker: Attacker) -> None:
    """16 workspaces whose webhook receivers never answer, each with test events all the time."""
    folder = Path(attacker.target.authority)
    ca = trustme.CA.from_pem((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())
    authority = Authority(ca, str(folder / "ca.pem"))
    async with AsyncExitStack() as stack:
        hook = await stack.enter_async_context(receiver(authority, Held()))
        keys = [await attacker.account() for _ in range(16)]
        hooks = []
        for key in keys:
            body = {"url": hook.url, "events": ["tts.completed"]}
            made = await attacker.post("/webhooks", key, json=body)
            hooks.append(made.json["id"])

        async def test(number: int) -> None:
            await attacker.post(f"/webhooks/{hooks[number]}/test", keys[number])
            await asyncio.sleep(1)

        await attacker.many(16, test)


@attack()
async def key_churn(attacker: Attacker) -> None:
    """API keys that are created, used and deleted in a loop, 10 at once."""
    token = await attacker.account("enterprise")

    async def churn(_: int) -> None:
        made = await attacker.post("/developer/api", token, json={"name": "k"})
        if made.status != 201:
            await asyncio.sleep(0.5)
            return
        await attacker.request("GET", "/plans", made.json["key"])
        await attacker.request("DELETE", f"/developer/api/{made.json['id']}", token)

    await attacker.many(10, churn)


@attack()
async def foreign_objects(attacker: Attacker) -> None:
    """Ids of others guessed on every route that takes one, 20 at once."""
    key = await attacker.account("enterprise")
    routes = (
        ("GET", "/voices/{}"),
        ("DELETE", "/voices/{}"),
        ("GET", "/chats/{}"),
        ("DELETE", "/chats/{}"),
        ("DELETE", "/webhooks/{}"),
        ("GET", "/webhooks/{}/deliveries"),
        ("DELETE", "/developer/api/{}"),
        ("GET", "/files/{}?expires=9999999999&signature=aaaa"),
    )

    async def ask(number: int) -> None:
        method, path = routes[number % len(routes)]
        guess = str(uuid4()) if "api" not in path else str(secrets.randbits(40))
        await attacker.request(method, path.format(guess), key)

    await attacker.many(20, ask)
