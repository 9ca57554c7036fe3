"""Password hashing: Unicode normalisation, no timing attack on unknown accounts, a queue."""

import asyncio
import multiprocessing
import os
from functools import partial
from typing import Any

import pytest
from argon2 import PasswordHasher, extract_parameters

from pipelines.accounts import passwords
from pipelines.accounts.passwords import Passwords
from pipelines.errors import InvalidRequest, Overloaded
from tests.cpu_time import check_cpu_units
from tests.kept import hash_as_shipped


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    hash_as_shipped(monkeypatch)


async def test_a_password_matches_in_every_unicode_normalisation_form() -> None:
    stored = await Passwords().hash("caf\u00e9 au lait")
    assert "caf" not in stored
    assert await Passwords().verify(stored, "cafe\u0301 au lait")
    assert not await Passwords().verify(stored, "cafe au lait")


async def test_verification_fails_for_an_unknown_account() -> None:
    assert not await Passwords().verify(None, "the account does not exist")


async def test_verification_does_the_same_hashing_work_for_an_unknown_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hasher = Passwords()
    stored = await hasher.hash("a long password")
    await hasher.verify(None, "the first of a process")
    verify, seen = PasswordHasher.verify, list[object]()

    def record_parameters(self: PasswordHasher, given: str, password: str) -> Any:
        seen.append(extract_parameters(given))
        return verify(self, given, password)

    monkeypatch.setattr(PasswordHasher, "verify", record_parameters)
    monkeypatch.setattr(PasswordHasher, "hash", None)
    for one in (stored, None):
        assert not await hasher.verify(one, "a wrong password")
    assert len(seen) == 2 and seen[0] == seen[1]


def test_no_password_takes_long_to_judge() -> None:
    """The only thread for passwords is that of all logins, and a sign-up needs no key."""
    signs = "4@8({[<369!1|0$5+7%2" * 12
    judge = partial(Passwords().hash_new, signs, f"a{signs}@example.com", signs[1:])
    asyncio.run(Passwords().hash_new("a long enough password"))  # loads the list
    # About 3 are measured, with the hash; with all combinations of 72 signs 60.
    check_cpu_units(lambda: asyncio.run(judge()), below=12)


async def test_a_password_that_is_the_users_own_address_is_refused() -> None:
    address = "somebody.long@company.example.com"
    with pytest.raises(InvalidRequest, match="about this account"):
        await Passwords().hash_new(address, address)


@pytest.mark.parametrize(
    "password", ["bob-firm-2026", "Firm.Bob!", "Antiphon_01.02.2026", "FirmXBob"]
)
async def test_a_password_of_words_about_the_account_is_refused(password: str) -> None:
    with pytest.raises(InvalidRequest, match="too easy to guess"):
        await Passwords().hash_new(password, "bob@firm.example", "Bob", "")
    assert await Passwords().hash_new(f"{password} by 7 herons", "bob@firm.example", "Bob", "")


async def test_hashing_beyond_the_queue_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "QUEUE_LENGTH", 1)
    hasher = Passwords()
    outcomes = await asyncio.gather(
        *(hasher.hash("a long password") for _ in range(5)), return_exceptions=True
    )
    assert [type(one) for one in outcomes] == [str] * 2 + [Overloaded] * 3


async def test_passwords_are_hashed_at_a_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    def record_priority(self: PasswordHasher, password: str) -> str:
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))
        return ""

    monkeypatch.setattr(PasswordHasher, "hash", record_priority)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    await Passwords().hash("a long password")
    assert seen == [min(own + passwords.NICENESS, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def hash_as_another_user() -> None:
    os.nice(19)
    if os.geteuid() == 0:  # who alone may raise priorities
        os.setuid(65534)
    assert asyncio.run(Passwords().hash("a long password"))


def test_passwords_are_hashed_in_a_service_of_lowest_priority() -> None:
    process = multiprocessing.get_context("forkserver").Process(target=hash_as_another_user)
    process.start()
    process.join()
    assert process.exitcode == 0
