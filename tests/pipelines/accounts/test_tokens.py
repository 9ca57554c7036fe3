"""Tokens of sign-up and login, and the change of the key that signs them."""

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


def test_tokens_of_before_are_read_while_their_key_is_known() -> None:
    before, after = issue_token(CLAIMS, OLD), issue_token(CLAIMS, NEW)
    for keys in ((NEW, OLD), (OLD, NEW)):
        assert read_token(before, keys) == read_token(after, keys) == CLAIMS
    assert read_token(before, (NEW,)) is None


def test_a_token_names_the_key_that_signed_it() -> None:
    names = {jwt.get_unverified_header(issue_token(CLAIMS, key))["kid"] for key in (OLD, NEW)}
    assert names == {token_key_id(OLD), token_key_id(NEW)}
    assert all(len(name) == 16 and name not in OLD for name in names)


def test_a_token_without_the_name_of_its_key_is_read() -> None:
    token = issue_token(CLAIMS, OLD)
    claims = jwt.decode(token, OLD, algorithms=["HS256"], audience=TOKEN_ISSUER)
    assert read_token(jwt.encode(claims, OLD), (NEW, OLD)) == CLAIMS
    assert read_token(jwt.encode(claims, "x" * 48), (NEW, OLD)) is None


@pytest.mark.parametrize("kid", ["", "nobody", token_key_id(NEW), 7, ["a"]])
def test_a_token_with_the_name_of_another_key_is_refused(kid: object) -> None:
    _, claims, _ = issue_token(CLAIMS, OLD).split(".")
    for name, expected in ((token_key_id(OLD), CLAIMS), (kid, None)):
        header = _part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": name}).encode())
        signature = _part(hmac.digest(OLD.encode(), f"{header}.{claims}".encode(), "sha256"))
        assert read_token(f"{header}.{claims}.{signature}", (NEW, OLD)) == expected


def _part(plain: bytes) -> str:
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


@pytest.mark.parametrize("text", ["..", "a.b.c", "e30.e30.e30", "W1tbW1tb.e30."])
def test_what_is_no_token_is_none(text: str) -> None:
    assert read_token(text, (NEW, OLD)) is None
