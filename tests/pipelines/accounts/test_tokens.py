"""Session tokens (JWT) of sign-up and login, and rotation of the key that signs them."""

import base64
import hmac
import json
from datetime import timedelta
from uuid import uuid4

import jwt
import pytest

from db.database import utc_now
from db.sessions import LoginSession
from pipelines.accounts.authentication import (
    TOKEN_ISSUER,
    TokenClaims,
    issue_token,
    read_token,
    token_key_id,
)

OLD, NEW = "o" * 48, "n" * 48
LOGIN = LoginSession(
    id=uuid4(),
    user_id=7,
    created_at=utc_now(),
    expires_at=utc_now() + timedelta(days=1),  # a run of all tests may take hours
)
CLAIMS = TokenClaims(user_id=7, session_id=LOGIN.id)


def token_of(key: str) -> str:
    return issue_token(7, 8, LOGIN, key)


def test_tokens_of_an_old_signing_key_are_valid_until_it_is_removed() -> None:
    before, after = token_of(OLD), token_of(NEW)
    for keys in ((NEW, OLD), (OLD, NEW)):
        assert read_token(before, keys) == read_token(after, keys) == CLAIMS
    assert read_token(before, (NEW,)) is None


def test_the_header_of_a_token_names_its_signing_key() -> None:
    names = {jwt.get_unverified_header(token_of(key))["kid"] for key in (OLD, NEW)}
    assert names == {token_key_id(OLD), token_key_id(NEW)}
    assert all(len(name) == 16 and name not in OLD for name in names)


def test_a_token_without_a_key_id_is_refused() -> None:
    claims = jwt.decode(token_of(OLD), OLD, algorithms=["HS256"], audience=TOKEN_ISSUER)
    assert read_token(jwt.encode(claims, OLD), (NEW, OLD)) is None


@pytest.mark.parametrize("kid", ["", "nobody", token_key_id(NEW), 7, ["a"]])
def test_a_token_with_a_wrong_key_id_is_refused(kid: object) -> None:
    _, claims, _ = token_of(OLD).split(".")
    for name, expected in ((token_key_id(OLD), CLAIMS), (kid, None)):
        header = _base64url(json.dumps({"alg": "HS256", "typ": "JWT", "kid": name}).encode())
        signature = _base64url(hmac.digest(OLD.encode(), f"{header}.{claims}".encode(), "sha256"))
        assert read_token(f"{header}.{claims}.{signature}", (NEW, OLD)) == expected


def _base64url(plain: bytes) -> str:
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


@pytest.mark.parametrize("text", ["..", "a.b.c", "e30.e30.e30", "W1tbW1tb.e30."])
def test_a_malformed_token_is_refused(text: str) -> None:
    assert read_token(text, (NEW, OLD)) is None
