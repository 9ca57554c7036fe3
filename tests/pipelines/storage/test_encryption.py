"""Sealed bytes open only under their key and their name."""

import base64
import os

import pytest

from pipelines.storage.encryption import SEAL_BYTES, DecryptionError, Encryption

OLD = base64.b64encode(os.urandom(32)).decode()
NEW = base64.b64encode(os.urandom(32)).decode()


def test_what_was_sealed_opens_again() -> None:
    sealer = Encryption([OLD])
    sealed = sealer.seal(b"a secret", "webhook:1")
    assert b"a secret" not in sealed
    assert len(sealed) == len(b"a secret") + SEAL_BYTES
    assert sealer.open(sealed, "webhook:1") == b"a secret"


def test_the_same_bytes_never_look_the_same() -> None:
    sealer = Encryption([OLD])
    assert sealer.seal(b"a", "x") != sealer.seal(b"a", "x")


def test_sealed_bytes_moved_to_another_row_do_not_open() -> None:
    sealer = Encryption([OLD])
    with pytest.raises(DecryptionError):
        sealer.open(sealer.seal(b"a secret", "webhook:1"), "webhook:2")


def test_any_changed_byte_is_noticed() -> None:
    sealer = Encryption([OLD])
    sealed = sealer.seal(b"a secret", "x")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(DecryptionError):
            sealer.open(bytes(changed), "x")
    for length in range(len(sealed)):
        with pytest.raises(DecryptionError):
            sealer.open(sealed[:length], "x")


def test_an_old_key_opens_and_the_new_one_seals() -> None:
    sealed = Encryption([OLD]).seal(b"a secret", "x")
    both = Encryption([NEW, OLD])
    assert not both.is_newest(sealed)
    fresh = both.rotate(sealed, "x")
    assert both.is_newest(fresh) and both.rotate(fresh, "x") == fresh
    assert Encryption([NEW]).open(fresh, "x") == b"a secret"
    with pytest.raises(DecryptionError):
        Encryption([NEW]).open(sealed, "x")
