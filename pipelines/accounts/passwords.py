"""Hashes and checks passwords in a thread of low priority."""

import asyncio
import os
import re
import time
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from configs.settings import BRAND
from models.fairness.slots import FairSlots
from pipelines.errors import InvalidRequest, Overloaded

T = TypeVar("T")

# Characters of a password, and of each word about the user, that are checked. zxcvbn tries every
# combination of signs that stand for letters, as "$" for "s": 16 characters take at most 50 ms, and
# 72 took 3 s.
GUESSED_LENGTH = 16
MIN_GUESSES = 10_000
DATE_DIGITS = 8
QUEUE_LENGTH = 16  # about 1.3 s of waiting at 40 ms a hash
# Lower priority than model replicas: with two threads of the gateway's own priority, wrong
# passwords from 50 addresses left the models a tenth of two cores, and all speech took 8 times as
# long. At this priority without rests, sign-ups from 50 addresses still made speech take 3 times as
# long.
NICENESS = 15


class Passwords:
    """Password hashing by argon2id at OWASP's minimum, in one thread that rests as long as it
    works. It does not block the event loop, and takes at most half of a core. Networks of clients
    take turns, and the network with the most requests in a full queue is refused with Overloaded,
    so that none keeps the others out. An operator's command has no network."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)
        # Linux has a niceness per thread. It is relative: users may not raise their priority.
        self._thread = ThreadPoolExecutor(1, "passwords", os.nice, (NICENESS,))
        self._slots = FairSlots(
            1, QUEUE_LENGTH, partial(Overloaded, "too many sign-ups and logins at once")
        )
        self._rested_at = 0.0  # end of the rest, by time.monotonic

    async def hash(self, password: str, *, network: str = "") -> str:
        """Hashes a password. Raises Overloaded."""
        return await self._in_thread(lambda: self._hasher.hash(_normal(password)), network)

    async def hash_new(
        self, password: str, *known: str, field: str = "password", network: str = ""
    ) -> str:
        """Hashes a new password. Raises as `hash`, and InvalidRequest for a password that is easy
        to guess: one of the first MIN_GUESSES guesses, or made of words about the user in the
        `known` texts (NIST SP 800-63B, 3.1.1.2)."""

        def checked() -> str:
            # Only new passwords need its list of 15 MB.
            from zxcvbn import zxcvbn

            words = [word[:GUESSED_LENGTH] for word in (BRAND, *known)]
            guess = zxcvbn(password[:GUESSED_LENGTH], user_inputs=words)
            if guess["guesses"] < MIN_GUESSES or _is_of_words(password, [BRAND, *known]):
                why = guess["feedback"]["warning"] or "It is made of words about this account."
                raise InvalidRequest(f"{field}: is too easy to guess. {why}")
            return self._hasher.hash(_normal(password))

        return await self._in_thread(checked, network)

    async def verify(self, stored: str | None, password: str, *, network: str = "") -> bool:
        """Verifies a password; equally slow if `stored` is None (no account). Raises Overloaded."""
        return await self._in_thread(lambda: self._matches(stored, password), network)

    def needs_rehash(self, stored: str) -> bool:
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


def _is_of_words(password: str, texts: Sequence[str]) -> bool:
    """Whether a password has only words of the texts, signs, and at most a date or two letters."""
    text = _normal(" ".join(texts)).casefold()
    words = {*re.findall(r"[^\W_]{3,}", text), *re.findall(r"[^\W\d_]{3,}", text)}
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    rest, count = re.subn(pattern, "", _normal(password).casefold())
    rest = re.sub(r"[\W_]+", "", rest)
    return count > 0 and len(rest) <= (DATE_DIGITS if rest.isdecimal() else 2)


def _normal(password: str) -> str:
    """Normalises to Unicode NFC, however the keyboard composes characters."""
    return unicodedata.normalize("NFC", password)
