"""Encryption at rest: AES-256-GCM with associated data that binds a ciphertext to its place."""

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
OVERHEAD_BYTES = HEADER_BYTES + NONCE_BYTES + TAG_BYTES  # additional bytes of encrypted data
MARK = "sealed:"  # prefix of encrypted values in a column of text


class DecryptionError(Exception):
    """The data was encrypted under an unknown key or with other associated data, or was changed."""


class Encryption:
    """The first key encrypts; every key decrypts, so that keys can be rotated. Encrypted bytes are:
    version, id of the key, nonce, cipher text, tag. Nonces are random: change the key before it has
    encrypted 2^32 times. Associated data names a place, as a table and a row."""

    def __init__(self, data_keys: Sequence[str]) -> None:
        """`data_keys`: base64 of 32 bytes each."""
        keys = [base64.b64decode(key, validate=True) for key in data_keys]
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._newest = _key_id(keys[0])

    def encrypt(self, data: bytes, associated_data: str) -> bytes:
        """Encrypts bytes for `decrypt` with the same associated data."""
        nonce, head = os.urandom(NONCE_BYTES), VERSION + self._newest
        cipher = self._ciphers[self._newest]
        return head + nonce + cipher.encrypt(nonce, data, head + associated_data.encode())

    def decrypt(self, encrypted: bytes, associated_data: str) -> bytes:
        """Decrypt bytes. Raises DecryptionError."""
        head, rest = encrypted[:HEADER_BYTES], encrypted[HEADER_BYTES:]
        cipher = self._ciphers.get(head[len(VERSION) :])
        if head[:1] != VERSION or cipher is None or len(encrypted) < OVERHEAD_BYTES:
            raise DecryptionError("encrypted under a key that is not in ANTIPHON_DATA_KEYS")
        bound = head + associated_data.encode()
        try:
            return cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], bound)
        except InvalidTag:
            raise DecryptionError("the bytes were changed, or belong elsewhere") from None

    def is_newest(self, encrypted: bytes) -> bool:
        """Whether the data is encrypted under the first key."""
        return encrypted[:HEADER_BYTES] == VERSION + self._newest

    def rotate(self, encrypted: bytes, associated_data: str) -> bytes:
        """Encrypts data again under the first key. Raises DecryptionError."""
        if self.is_newest(encrypted):
            return encrypted
        return self.encrypt(self.decrypt(encrypted, associated_data), associated_data)

    def encrypt_text(self, text: str, associated_data: str) -> str:
        """Encrypts a text as `encrypt` does, for a column of text."""
        return MARK + base64.b64encode(self.encrypt(text.encode(), associated_data)).decode()

    def decrypt_text(self, stored: str, associated_data: str) -> str:
        """Decrypts the text of `encrypt_text`. Raises DecryptionError."""
        return self.decrypt(_decode(stored), associated_data).decode()

    def rotate_text(self, stored: str, associated_data: str) -> str:
        """Rotates the key of a text as `rotate` does, for a column of text."""
        rotated = self.rotate(_decode(stored), associated_data)
        return MARK + base64.b64encode(rotated).decode()


def _decode(stored: str) -> bytes:
    try:
        return base64.b64decode(stored.removeprefix(MARK), validate=True)
    except ValueError:
        raise DecryptionError("the text was changed") from None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"antiphon data key" + key).digest()[:KEY_ID_BYTES]
