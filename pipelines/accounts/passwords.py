"""Hashes of passwords, made and checked in threads."""

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from pipelines.errors import Overloaded

T = TypeVar("T")

HASHING_THREADS = 2
QUEUE_LENGTH = 16  # about 0.4 s of waiting at 40 ms a hash


class Passwords:
    """argon2id at the minimum that OWASP recommends, in threads, so that it neither blocks the
    event loop nor takes both cores."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)
        self._threads = ThreadPoolExecutor(HASHING_THREADS, thread_name_prefix="passwords")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Raises Overloaded."""
        return await self._in_thread(lambda: self._hasher.hash(_normal(password)))

    async def verify(self, stored: str | None, password: str) -> bool:
        """Takes as long for an account that does not exist (`stored` is None).

        Raises Overloaded.
        """
        return await self._in_thread(lambda: self._matches(stored, password))

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

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._waiting >= QUEUE_LENGTH + HASHING_THREADS:
            raise Overloaded("too many sign-ups and logins at once; try again in a second")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def _normal(password: str) -> str:
    """Unicode NFC: the same password, however the keyboard composes its characters."""
    return unicodedata.normalize("NFC", password)
