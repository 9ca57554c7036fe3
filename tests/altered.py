"""Secrets that differ from real ones in a character."""


def altered(secret: str) -> str:
    """Another last character. A constant one would now and then be the one that is there."""
    return secret[:-1] + ("1" if secret[-1] == "0" else "0")
