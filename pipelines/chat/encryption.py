"""Encryption of chats at rest: messages and titles, bound to their workspace and chat."""

import json
from typing import Any
from uuid import UUID

from pipelines.storage.encryption import MARK, Encryption


class ChatEncryption:
    """Encrypts texts for their columns."""

    def __init__(self, encryption: Encryption) -> None:
        self._encryption = encryption

    def seal_message(
        self, workspace_id: int, chat_id: UUID, content: str, extra: dict[str, Any]
    ) -> str:
        """Text and extras together."""
        plain = json.dumps([content, extra], ensure_ascii=False)
        return self._encryption.encrypt_text(plain, _about(workspace_id, chat_id))

    def open_message(
        self, workspace_id: int, chat_id: UUID, stored: str, extra: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Text and extras; `extra` is stored beside a text that is not encrypted.

        Raises DecryptionError.
        """
        if not stored.startswith(MARK):
            return stored, extra
        opened: tuple[str, dict[str, Any]]
        opened = tuple(
            json.loads(self._encryption.decrypt_text(stored, _about(workspace_id, chat_id)))
        )
        return opened

    def seal_title(self, workspace_id: int, chat_id: UUID, title: str) -> str:
        """A title for its column."""
        return self._encryption.encrypt_text(title, _about(workspace_id, chat_id, "title"))

    def open_title(self, workspace_id: int, chat_id: UUID, stored: str) -> str:
        """Raises DecryptionError."""
        return self._encryption.decrypt_text(stored, _about(workspace_id, chat_id, "title"))

    def is_newest(self, stored: str) -> bool:
        """Whether the newest key encrypted it."""
        return self._encryption.is_newest_text(stored)


def _about(workspace_id: int, chat_id: UUID, what: str = "message") -> str:
    return f"chat:{workspace_id}:{chat_id}:{what}"
