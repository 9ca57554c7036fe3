"""The order of rows that processes claim, so that their owners take turns."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def interleave(
    pieces: Iterable[T],
    *,
    owner: Callable[[T], K],
    rank: Callable[[T], Any],
    held: Mapping[K, int] | None = None,
) -> list[T]:
    """Order pieces of work so that their owners take turns; an owner's pieces keep their order.

    Applies the rule of `TurnOrder` (`models/fairness`) to work that several processes claim: the
    next piece comes from the owner with the fewest pieces placed or in work (`held`); among equals,
    from the owner whose first piece has the lowest `rank`.
    """
    ahead = Counter(held)
    ranks: dict[K, Any] = {}
    turns: list[tuple[int, Any, T]] = []
    for piece in pieces:
        of = owner(piece)
        if of not in ranks:
            ranks[of] = rank(piece)
        turns.append((ahead[of], ranks[of], piece))
        ahead[of] += 1
    return [piece for *_, piece in sorted(turns, key=itemgetter(0, 1))]
