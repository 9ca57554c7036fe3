"""Numbers beside the limits that they missed."""

import pytest

from models.figures import beside


@pytest.mark.parametrize(
    ("value", "limit", "digits", "texts"),
    [
        (12, 40, 0, ("12", "40")),
        (39.7, 40, 0, ("39.7", "40.0")),
        (39.96, 40, 0, ("39.96", "40.00")),
        (-50.2, -50, 0, ("-50.2", "-50.0")),
        (0.649, 0.65, 2, ("0.649", "0.650")),
        (40, 40, 0, ("40.000000", "40.000000")),
    ],
)
def test_a_value_never_looks_like_its_limit(
    value: float, limit: float, digits: int, texts: tuple[str, str]
) -> None:
    assert beside(value, limit, digits) == texts
