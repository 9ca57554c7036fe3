"""Encryption at rest: ciphertext decrypts only with its key and its associated data."""

import base64
import os

import pytest

from pipelines.storage.encryption import OVERHEAD_BYTES, DecryptionError, Encryption

OLD = base64.b64encode(os.urandom(32)).decode()
NEW = base64.b64encode(os.urandom(32)).decode()


def test_encrypted_bytes_decrypt_to_the_plaintext() -> None:
    encryption = Encryption([OLD])
    ciphertext = encryption.encrypt(b"a secret", "webhook:1")
    assert b"a secret" not in ciphertext
    assert len(ciphertext) == len(b"a secret") + OVERHEAD_BYTES
    assert encryption.decrypt(ciphertext, "webhook:1") == b"a secret"


def test_equal_plaintexts_have_different_ciphertexts() -> None:
    encryption = Encryption([OLD])
    assert encryption.encrypt(b"a", "x") != encryption.encrypt(b"a", "x")


def test_ciphertext_moved_to_another_row_does_not_decrypt() -> None:
    encryption = Encryption([OLD])
    with pytest.raises(DecryptionError):
        encryption.decrypt(encryption.encrypt(b"a secret", "webhook:1"), "webhook:2")


def test_altered_or_truncated_ciphertext_does_not_decrypt() -> None:
    encryption = Encryption([OLD])
    ciphertext = encryption.encrypt(b"a secret", "x")
    for place in range(len(ciphertext)):
        changed = bytearray(ciphertext)
        changed[place] ^= 1
        with pytest.raises(DecryptionError):
            encryption.decrypt(bytes(changed), "x")
    for length in range(len(ciphertext)):
        with pytest.raises(DecryptionError):
            encryption.decrypt(ciphertext[:length], "x")


def test_old_keys_decrypt_and_the_newest_key_encrypts() -> None:
    ciphertext = Encryption([OLD]).encrypt(b"a secret", "x")
    both = Encryption([NEW, OLD])
    assert not both.is_newest(ciphertext)
    fresh = both.rotate(ciphertext, "x")
    assert both.is_newest(fresh) and both.rotate(fresh, "x") == fresh
    assert Encryption([NEW]).decrypt(fresh, "x") == b"a secret"
    with pytest.raises(DecryptionError):
        Encryption([NEW]).decrypt(ciphertext, "x")
