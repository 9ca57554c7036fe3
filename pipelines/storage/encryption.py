"""Encryption at rest: AES-256-GCM under the operator's keys, with associated data that binds
a ciphertext to its place."""

import base64
import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = b"\x01"
KEY_ID_BYTES = 8
NONCE_BYTES = 12
TAG_BYTES = 16
HEADER_BYTES = len(VERSION) + KEY_ID_BYTES
SEAL_BYTES = HEADER_BYTES + NONCE_BYTES + TAG_BYTES
"""How much longer sealed bytes are."""
MARK = "sealed:"
"""Before what is sealed in a column of text; texts of before there was sealing have none."""


class DecryptionError(Exception):
    """The bytes were not sealed by a key that is known, not about this, or were changed."""


class Encryption:
    """The first key seals; every key opens, so that keys can be changed while all is running.

    Sealed bytes are: version, id of the key, nonce, cipher text, tag. Nonces are random: change the
    key before it has sealed 2^32 times.
    """

    def __init__(self, data_keys: Sequence[str]) -> None:
        """`data_keys`: base64 of 32 bytes each."""
        keys = [base64.b64decode(key, validate=True) for key in data_keys]
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._newest = _key_id(keys[0])

    def seal(self, data: bytes, about: str) -> bytes:
        """Only who knows the key and names the same `about` (table and row) can open it."""
        nonce = os.urandom(NONCE_BYTES)
        head = VERSION + self._newest
        sealed = self._ciphers[self._newest].encrypt(nonce, data, head + about.encode())
        return head + nonce + sealed

    def open(self, sealed: bytes, about: str) -> bytes:
        """Raises DecryptionError."""
        head, rest = sealed[:HEADER_BYTES], sealed[HEADER_BYTES:]
        cipher = self._ciphers.get(head[len(VERSION) :])
        if head[:1] != VERSION or cipher is None or len(sealed) < SEAL_BYTES:
            raise DecryptionError("sealed by a key that is not among ANTIPHON_DATA_KEYS")
        try:
            return cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], head + about.encode())
        except InvalidTag:
            raise DecryptionError("the bytes were changed, or are about something else") from None

    def is_newest(self, sealed: bytes) -> bool:
        """Whether the first key sealed it; what another sealed is sealed again by `rotate`."""
        return sealed[:HEADER_BYTES] == VERSION + self._newest

    def rotate(self, sealed: bytes, about: str) -> bytes:
        """The same under the first key. Raises DecryptionError."""
        return sealed if self.is_newest(sealed) else self.seal(self.open(sealed, about), about)

    def seal_text(self, text: str, about: str) -> str:
        """As `seal`, for a column of text."""
        return MARK + base64.b64encode(self.seal(text.encode(), about)).decode()

    def open_text(self, stored: str, about: str) -> str:
        """What `seal_text` sealed; a text without MARK as it is. Raises DecryptionError."""
        if not stored.startswith(MARK):
            return stored
        return self.open(_decode(stored), about).decode()

    def is_newest_text(self, stored: str) -> bool:
        """Whether `seal_text` sealed it with the first key."""
        return stored.startswith(MARK) and self.is_newest(_decode(stored))


def _decode(stored: str) -> bytes:
    try:
        return base64.b64decode(stored.removeprefix(MARK), validate=True)
    except ValueError:
        raise DecryptionError("the text was changed") from None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"antiphon data key" + key).digest()[:KEY_ID_BYTES]
