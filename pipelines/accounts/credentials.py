"""What proves who calls: API keys and signed tokens. Pure but for randomness and the clock."""

import hashlib
import hmac
import secrets
import string
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import jwt

from db.columns import utc_now

KEY_PREFIX = "sk_"
KEY_RANDOM_LENGTH = 40
KEY_CHECKSUM_LENGTH = 6
KEY_SHOWN_LENGTH = len(KEY_PREFIX) + 8  # how much of a key its owner sees later
TOKEN_LIFETIME = timedelta(hours=24)
TOKEN_ISSUER = "antiphon"

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def new_api_key() -> str:
    """`sk_`, 40 random characters of base62 and 6 of checksum."""
    body = "".join(secrets.choice(_BASE62) for _ in range(KEY_RANDOM_LENGTH))
    return f"{KEY_PREFIX}{body}{_checksum(body)}"


def is_api_key(credential: str) -> bool:
    """Whether the form and the checksum are right; needs no look-up."""
    length = len(KEY_PREFIX) + KEY_RANDOM_LENGTH + KEY_CHECKSUM_LENGTH
    if len(credential) != length or not credential.startswith(KEY_PREFIX):
        return False
    body = credential[len(KEY_PREFIX) : -KEY_CHECKSUM_LENGTH]
    return credential.isascii() and _checksum(body) == credential[-KEY_CHECKSUM_LENGTH:]


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = []
    for _ in range(KEY_CHECKSUM_LENGTH):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


def key_digest(key: str, pepper: str) -> bytes:
    """What is stored of a key. A fast hash suffices: keys have 238 random bits."""
    return hmac.digest(pepper.encode(), key.encode(), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """Whom a token stands for."""

    user_id: int
    workspace_id: int


def token_key_id(key: str) -> str:
    """The `kid` of what `key` signs; nothing leads back from it."""
    return hmac.digest(key.encode(), b"kid", "sha256").hex()[:16]


def issue_token(claims: TokenClaims, key: str) -> str:
    """A JWT for a day."""
    now = utc_now()
    return jwt.encode(
        {
            "iss": TOKEN_ISSUER,
            "aud": TOKEN_ISSUER,
            "sub": str(claims.user_id),
            "workspace": str(claims.workspace_id),
            "iat": now,
            "exp": now + TOKEN_LIFETIME,
            "jti": uuid.uuid4().hex,
        },
        key,
        algorithm="HS256",
        headers={"kid": token_key_id(key)},
    )


def read_token(token: str, keys: Sequence[str]) -> TokenClaims | None:
    """None for every token that none of `keys` signed, is damaged or has expired.

    A token without `kid` may be of any of them.
    """
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except jwt.InvalidTokenError:
        return None
    possible = (key for key in keys if kid is None or kid == token_key_id(key))
    return next(filter(None, (_read_token(token, key) for key in possible)), None)


def _read_token(token: str, key: str) -> TokenClaims | None:
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=["HS256"],
            audience=TOKEN_ISSUER,
            issuer=TOKEN_ISSUER,
            options={
                "require": ["iss", "aud", "sub", "iat", "exp", "jti"],
                # A token of the future is one of a gateway whose clock is ahead, or was set back.
                "verify_iat": False,
            },
        )
        return TokenClaims(int(claims["sub"]), int(claims["workspace"]))
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
        return None
