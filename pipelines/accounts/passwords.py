"""Hashes of passwords, made and checked in a thread of low priority."""

import asyncio
import os
import time
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from configs.settings import BRAND
from models.fairness.slots import FairSlots
from pipelines.errors import InvalidRequest, Overloaded

T = TypeVar("T")

# Characters of a password, and of each word about the user. Of signs that stand for letters, as "$"
# for "s", every combination is looked up: 16 take 50 ms at most, and 72 took 3 s.
GUESSED_LENGTH = 16
MIN_GUESSES = 10_000
QUEUE_LENGTH = 16  # about 1.3 s of waiting at 40 ms a hash
# Below model replicas: with two threads of the gateway's own priority, wrong passwords from 50
# addresses left the models a tenth of two cores, and all speech took 8 times as long. At this one
# and without a rest, the sign-ups of 50 addresses still made it 3 times as long.
NICENESS = 15


class Passwords:
    """argon2id at the minimum that OWASP recommends, in one thread that rests as long as it works:
    it does not block the event loop, and takes half of a core at most.

    Networks of clients get it in turn, and the one with the most requests in a full queue is
    refused with Overloaded, so that none keeps the others out. An operator's command has none.
    """

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)
        # Of this thread: Linux has one for each. Relative, as no user may raise the own priority.
        self._thread = ThreadPoolExecutor(1, "passwords", os.nice, (NICENESS,))
        self._slots = FairSlots(
            1, QUEUE_LENGTH, partial(Overloaded, "too many sign-ups and logins at once")
        )
        self._rested_at = 0.0  # of time.monotonic()

    async def hash(self, password: str, *, network: str = "") -> str:
        """Raises Overloaded."""
        return await self._in_thread(lambda: self._hasher.hash(_normal(password)), network)

    async def hash_new(
        self, password: str, *known: str, field: str = "password", network: str = ""
    ) -> str:
        """As `hash`. Raises InvalidRequest for one of the MIN_GUESSES passwords that are guessed
        first, also those made of `known` words about the user (NIST SP 800-63B, 3.1.1.2)."""

        def checked() -> str:
            # A 15 MB list, for sign-ups only.
            from zxcvbn import zxcvbn

            words = [word[:GUESSED_LENGTH] for word in (BRAND, *known)]
            found = zxcvbn(password[:GUESSED_LENGTH], user_inputs=words)
            if found["guesses"] < MIN_GUESSES:
                why = found["feedback"]["warning"] or "It is made of words about this account."
                raise InvalidRequest(f"{field}: is too easy to guess. {why}")
            return self._hasher.hash(_normal(password))

        return await self._in_thread(checked, network)

    async def verify(self, stored: str | None, password: str, *, network: str = "") -> bool:
        """Takes as long for an account that does not exist (`stored` is None).

        Raises Overloaded.
        """
        return await self._in_thread(lambda: self._matches(stored, password), network)

    def needs_rehash(self, stored: str) -> bool:
        """Whether the hash has other parameters than the current ones."""
        return self._hasher.check_needs_rehash(stored)

    @cached_property
    def _dummy_hash(self) -> str:
        return self._hasher.hash("the account does not exist")

    def _matches(self, stored: str | None, password: str) -> bool:
        try:
            matches = self._hasher.verify(stored or self._dummy_hash, _normal(password))
        except (VerificationError, InvalidHashError):
            return False
        return matches and stored is not None

    async def _in_thread(self, work: Callable[[], T], network: str) -> T:
        loop = asyncio.get_running_loop()
        async with self._slots.slot(network):
            return await loop.run_in_executor(self._thread, self._rested, work)

    def _rested(self, work: Callable[[], T]) -> T:
        time.sleep(max(0.0, self._rested_at - time.monotonic()))
        began = time.thread_time()
        try:
            return work()
        finally:
            self._rested_at = time.monotonic() + time.thread_time() - began


def _normal(password: str) -> str:
    """Unicode NFC: the same password, however the keyboard composes its characters."""
    return unicodedata.normalize("NFC", password)
