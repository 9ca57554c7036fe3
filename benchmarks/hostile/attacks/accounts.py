"""Attacks on accounts, keys and webhooks."""

import asyncio
import secrets
from pathlib import Path
from uuid import uuid4

import trustme

from benchmarks.hostile.attacker import PASSWORD, Attacker, attack, looped_attack
from pipelines.accounts.authentication import new_api_key
from tests.pipelines.webhooks.receivers import Authority, Held, receiver

ROUTES_WITH_IDS = (
    ("GET", "/voices/{}"),
    ("DELETE", "/voices/{}"),
    ("GET", "/chats/{}"),
    ("DELETE", "/chats/{}"),
    ("DELETE", "/webhooks/{}"),
    ("GET", "/webhooks/{}/deliveries"),
    ("DELETE", "/developer/api/{}"),
    ("GET", "/files/{}?expires=9999999999&signature=aaaa"),
)


@attack()
async def failed_logins(attacker: Attacker) -> None:
    """Wrong passwords for one account and for unknown ones, from 50 addresses, 20 at once."""
    await attacker.account()
    victim = attacker.emails[0]
    addresses = [attacker.new_address() for _ in range(50)]

    async def log_in(number: int) -> None:
        email = victim if number % 2 else f"{uuid4().hex}@example.com"
        body = {"email": email, "password": secrets.token_hex(8)}
        await attacker.post("/auth/login", json=body, address=secrets.choice(addresses))

    await attacker.many(20, log_in)


@attack()
async def sign_up_storm(attacker: Attacker) -> None:
    """Sign-ups from 50 addresses, 20 at once, each with its free credit and the largest plan."""
    addresses = [attacker.new_address() for _ in range(50)]

    async def sign_up(_: int) -> None:
        body = {"email": f"{uuid4().hex}@example.com", "password": PASSWORD}
        address = secrets.choice(addresses)
        answer = await attacker.post("/auth/signup", json=body, address=address)
        if answer.status == 201:
            plan = {"plan_id": "enterprise"}
            await attacker.post("/billing/subscribe", answer.json["token"], json=plan)

    await attacker.many(20, sign_up)


@looped_attack(loops=50)
async def unknown_keys(attacker: Attacker, number: int) -> None:
    """Keys with a valid checksum that were never issued, and forged tokens, 50 at once"""
    key = new_api_key() if number % 5 else f"e30.{secrets.token_urlsafe(60)}.e30"
    await attacker.request("GET", "/plans", key)


@attack()
async def hanging_receivers(attacker: Attacker) -> None:
    """16 workspaces whose webhook receivers never answer, each with test events all the time."""
    folder = Path(attacker.target.authority)
    ca = trustme.CA.from_pem((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())
    async with receiver(Authority(ca, str(folder / "ca.pem")), Held()) as hook:
        hooks = []
        for _ in range(16):
            key = await attacker.account()
            body = {"url": hook.url, "events": ["tts.completed"]}
            answer = await attacker.post("/webhooks", key, json=body)
            hooks.append((answer.json["id"], key))

        async def test(number: int) -> None:
            hook_id, key = hooks[number]
            await attacker.post(f"/webhooks/{hook_id}/test", key)
            await asyncio.sleep(1)

        await attacker.many(16, test)


@looped_attack(loops=10, accounts=1, plan="enterprise")
async def key_churn(attacker: Attacker, number: int) -> None:
    """API keys that are created, used and deleted in a loop, 10 at once."""
    token = attacker.key(number)
    answer = await attacker.post("/developer/api", token, json={"name": "k"})
    if answer.status != 201:
        await asyncio.sleep(0.5)
        return
    await attacker.request("GET", "/plans", answer.json["key"])
    await attacker.request("DELETE", f"/developer/api/{answer.json['id']}", token)


@looped_attack(loops=20, accounts=1, plan="enterprise")
async def foreign_objects(attacker: Attacker, number: int) -> None:
    """Guessed ids of other workspaces on every route that takes an id, 20 at once."""
    method, path = ROUTES_WITH_IDS[number % len(ROUTES_WITH_IDS)]
    guess = str(secrets.randbits(40)) if "api" in path else str(uuid4())
    await attacker.request(method, path.format(guess), attacker.key(number))
