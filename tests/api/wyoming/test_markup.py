"""Vendors' markup in the pieces of a streamed text is not spoken."""

import pytest

from models.tts.base import SynthesisRequest
from tests.api.sockets.tts.test_markup import PIECES, WORDS, spoken, words
from tests.api.wyoming.conftest import Home

__all__ = ["spoken"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_markup_in_pieces_is_not_spoken(home: Home, spoken: list[SynthesisRequest]) -> None:
    async with home.client() as client:
        await client.send("synthesize-start")
        for piece in PIECES:
            await client.send("synthesize-chunk", text=piece)
        await client.send("synthesize-stop")
        await client.until("synthesize-stopped")
    assert words(spoken) == WORDS
