"""Prompt caches of chats that lost their slot, kept in memory until these chats continue."""

import json
import logging
import os
import threading
import time
import weakref
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from configs.environment import free_bytes
from models.llm.slots import CachedChat, Slot, best_chat
from telemetry import metrics

logger = logging.getLogger(__name__)

# llama.cpp saves to files. An anonymous file in memory never reaches a disk, cannot be opened by
# other users, and ends with this process.
FOLDER = "/proc/self/fd/"
# Saving and restoring 414 tokens of SmolLM2 takes 50 ms on busy cores, processing them again 8 s.
LEAST_TOKENS = 128
FREE_SHARE = 0.25  # share of free memory
AGE_S = 900.0  # how long a chat that does not continue is kept
_LOOK_S = 30.0  # interval of checks of the age
_ANSWER_S = 60.0  # timeout: llama.cpp answers only between two batches


class _Memory:
    """Anonymous file in memory, closed with this object."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.until = time.monotonic() + AGE_S
        # Not called at exit, when the system closes the file: `os` may be gone by then.
        weakref.finalize(self, os.close, descriptor).atexit = False

    @property
    def size_bytes(self) -> int:
        return os.fstat(self.descriptor).st_size


class KeptChats:
    """Store of the prompt caches of chats that lost their slot, until the chats continue. A cache
    is restored for its owner only, by the rule with which `Slots` finds a cache. A failure fails no
    request: after the first, nothing is kept, and prompts are processed again."""

    def __init__(self, address: str, key: str, token_bytes: float, most_bytes: int) -> None:
        """`address` and `key` are those of llama.cpp's own port."""
        self._address = address.removeprefix("http://")
        self._headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
        self._token_bytes = token_bytes
        self._most_bytes = most_bytes
        self._chats: dict[CachedChat, _Memory] = {}  # oldest first
        self._asked: _Memory | None = None  # llama.cpp may still use it
        self._lock = threading.RLock()
        self._has_watch = False

    def exchange(self, slot: Slot) -> bool:
        """Saves the chat that loses the slot, and restores the chat that takes it; blocking.
        Returns whether the prompt of that chat is in the slot again."""
        if slot.previous is slot.chat or not self._most_bytes:
            return False
        with self._lock:
            chat = best_chat(self._chats, slot.chat.owner, slot.chat.hashes)
            memory = self._chats.pop(chat) if chat is not None else None
            try:
                self._save(slot)
                if chat is None or memory is None:
                    return False
                self._ask("restore", slot, memory)
            except (OSError, HTTPException) as error:
                self.stop(str(error))
                return False
            slot.chat.tokens = chat.tokens
            slot.chat.is_draft = False
            self._make_room()
            metrics.chats_restored.inc()
            return True

    def stop(self, reason: str) -> None:
        """Drops all chats and keeps no more."""
        logger.warning("chats_not_kept", extra={"reason": reason})
        with self._lock:
            self._most_bytes = 0
            self._make_room()
            if self._asked is not None:  # an empty file restores nothing
                os.ftruncate(self._asked.descriptor, 0)

    def _save(self, slot: Slot) -> None:
        chat = slot.previous
        if chat.is_draft or chat.tokens < LEAST_TOKENS:
            return
        if self._make_room(int(chat.tokens * self._token_bytes)):
            memory = _Memory(os.memfd_create("chat"))
            self._ask("save", slot, memory)
            self._chats[chat] = memory
            self._make_room()
            if not self._has_watch:
                self._has_watch = True
                threading.Thread(target=_watch, args=[weakref.ref(self)], daemon=True).start()

    def _make_room(self, size: int = 0) -> bool:
        """Drops expired chats and, for `size` more bytes, the oldest; returns whether they fit."""
        kept = sum(memory.size_bytes for memory in self._chats.values())
        most = min(self._most_bytes, int((kept + free_bytes()) * FREE_SHARE))
        for chat, memory in list(self._chats.items()):
            if memory.until < time.monotonic() or size <= most < kept + size:
                kept -= memory.size_bytes
                del self._chats[chat]
        metrics.chats_kept_bytes.set(kept)
        return size <= most

    def drop_old(self) -> bool:
        """Drops expired chats; returns whether any are left."""
        with self._lock:
            self._make_room()
            self._has_watch = bool(self._chats)
            return self._has_watch

    def _ask(self, action: str, slot: Slot, memory: _Memory) -> None:
        """Asks llama.cpp to save or restore the slot. Raises OSError or HTTPException."""
        # Without an answer llama.cpp may still use the file: its descriptor stays open, so that no
        # other file gets its number.
        self._asked = memory
        connection = HTTPConnection(self._address, timeout=_ANSWER_S)
        try:
            body = json.dumps({"filename": str(memory.descriptor)})
            path = f"/slots/{slot.index}?action={action}"
            connection.request("POST", path, body, self._headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise OSError(answer.read().decode(errors="replace"))
        finally:
            connection.close()
        self._asked = None


def _watch(reference: "weakref.ref[KeptChats]") -> None:
    """Drops expired chats until none is left or the engine is gone; runs in a thread."""
    while (kept_chats := reference()) is not None and kept_chats.drop_old():
        del kept_chats
        time.sleep(_LOOK_S)
