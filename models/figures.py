"""Numbers in messages."""

MOST_DIGITS = 6


def beside(value: float, limit: float, digits: int = 0) -> tuple[str, str]:
    """Formats a value and the limit that it missed, with so many digits after the point, or with
    more if they would look equal."""
    while digits < MOST_DIGITS and f"{value:.{digits}f}" == f"{limit:.{digits}f}":
        digits += 1
    return f"{value:.{digits}f}", f"{limit:.{digits}f}"
