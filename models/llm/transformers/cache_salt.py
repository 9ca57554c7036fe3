"""Cache salt: pages of the prefix cache are reused only for requests of the same owner.

The library names a page by a hash of its tokens and of the page before it, so a client could find
out by the time to the first token whether another tenant has sent the same prompt (a timing side
channel; vLLM has `cache_salt` against it). Here the first hashed tokens carry a hash of the owner,
and with them all pages that follow.
"""

import hashlib
from collections.abc import Callable
from typing import Any

SALTED = 3  # tokens, of 31 bits each
_MASK = 2**31 - 1


def salt_cache_keys(cache: Any, owner_of: Callable[[str], str]) -> None:
    """`owner_of` maps the id of a request to its owner."""
    search = cache.search_prefix_match

    def search_salted(request_id: str, prompt_ids: list[int]) -> int:
        found: int = search(request_id, salted(prompt_ids, owner_of(request_id)))
        return found

    cache.search_prefix_match = search_salted
    for allocator in cache.cache_allocators.values():
        allocator.mark_complete_blocks = _salting(allocator.mark_complete_blocks, owner_of)


def salted(tokens: list[int], owner: str) -> list[int]:
    """The tokens as they are hashed."""
    digest = hashlib.sha256(owner.encode()).digest()
    salts = [int.from_bytes(digest[4 * at : 4 * at + 4]) & _MASK for at in range(SALTED)]
    return [
        *(token ^ salt for token, salt in zip(tokens, salts, strict=False)),
        *tokens[SALTED:],
    ]


def _salting(
    name: Callable[[str, list[int], int], None], owner_of: Callable[[str], str]
) -> Callable[[str, list[int], int], None]:
    def name_salted(request_id: str, token_ids: list[int], new_new_blocks: int) -> None:
        name(request_id, salted(token_ids, owner_of(request_id)), new_new_blocks)

    return name_salted
