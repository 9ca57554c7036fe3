"""Session tokens (JWT) of sign-up and login, and rotation of the key that signs them."""

import base64
import hmac
import json

import jwt
import pytest

from pipelines.accounts.authentication import (
    TOKEN_ISSUER,
    TokenClaims,
    issue_token,
    read_token,
    token_key_id,
)

OLD, NEW = "o" * 48, "n" * 48
CLAIMS = TokenClaims(user_id=7, workspace_id=8)


def test_tokens_of_an_old_signing_key_are_valid_until_it_is_removed() -> None:
    before, after = issue_token(CLAIMS, OLD), issue_token(CLAIMS, NEW)
    for keys in ((NEW, OLD), (OLD, NEW)):
        assert read_token(before, keys) == read_token(after, keys) == CLAIMS
    assert read_token(before, (NEW,)) is None


def test_the_header_of_a_token_names_its_signing_key() -> None:
    names = {jwt.get_unverified_header(issue_token(CLAIMS, key))["kid"] for key in (OLD, NEW)}
    assert names == {token_key_id(OLD), token_key_id(NEW)}
    assert all(len(name) == 16 and name not in OLD for name in names)


def test_a_token_without_a_key_id_is_verified_with_every_key() -> None:
    token = issue_token(CLAIMS, OLD)
    claims = jwt.decode(token, OLD, algorithms=["HS256"], audience=TOKEN_ISSUER)
    assert read_token(jwt.encode(claims, OLD), (NEW, OLD)) == CLAIMS
    assert read_token(jwt.encode(claims, "x" * 48), (NEW, OLD)) is None


@pytest.mark.parametrize("kid", ["", "nobody", token_key_id(NEW), 7, ["a"]])
def test_a_token_with_a_wrong_key_id_is_refused(kid: object) -> None:
    _, claims, _ = issue_token(CLAIMS, OLD).split(".")
    for name, expected in ((token_key_id(OLD), CLAIMS), (kid, None)):
        header = _base64url(json.dumps({"alg": "HS256", "typ": "JWT", "kid": name}).encode())
        signature = _base64url(hmac.digest(OLD.encode(), f"{header}.{claims}".encode(), "sha256"))
        assert read_token(f"{header}.{claims}.{signature}", (NEW, OLD)) == expected


def _base64url(plain: bytes) -> str:
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


@pytest.mark.parametrize("text", ["..", "a.b.c", "e30.e30.e30", "W1tbW1tb.e30."])
def test_a_malformed_token_is_refused(text: str) -> None:
    assert read_token(text, (NEW, OLD)) is None
