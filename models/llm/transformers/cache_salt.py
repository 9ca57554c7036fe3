"""Pages of the cache that are recognised in later prompts, but only in those of the same owner.

The library names a page by a hash of its tokens and of the page before it, so that whoever sends a
prompt can tell by the time to the first token whether somebody has sent it before. Here the first
tokens of what is hashed carry the owner's mark, and with them all pages that follow.
"""

import hashlib
from collections.abc import Callable
from typing import Any

MARKED = 3  # tokens, of 31 bits each
_MASK = 2**31 - 1


def salt_cache_keys(cache: Any, owner_of: Callable[[str], str]) -> None:
    """`owner_of` tells whose the request of an id is."""
    search = cache.search_prefix_match

    def search_own(request_id: str, prompt_ids: list[int]) -> int:
        found: int = search(request_id, marked(prompt_ids, owner_of(request_id)))
        return found

    cache.search_prefix_match = search_own
    for allocator in cache.cache_allocators.values():
        allocator.mark_complete_blocks = _naming_own(allocator.mark_complete_blocks, owner_of)


def marked(tokens: list[int], owner: str) -> list[int]:
    """The tokens as they are hashed."""
    digest = hashlib.sha256(owner.encode()).digest()
    marks = [int.from_bytes(digest[4 * at : 4 * at + 4]) & _MASK for at in range(MARKED)]
    return [
        *(token ^ mark for token, mark in zip(tokens, marks, strict=False)),
        *tokens[MARKED:],
    ]


def _naming_own(
    name: Callable[[str, list[int], int], None], owner_of: Callable[[str], str]
) -> Callable[[str, list[int], int], None]:
    def name_own(request_id: str, token_ids: list[int], new_new_blocks: int) -> None:
        name(request_id, marked(token_ids, owner_of(request_id)), new_new_blocks)

    return name_own
