"""Pipecat's services for Cartesia, pointed at this service. Arguments: URL, key.

Run by the interpreter of .venv-clients; prints what they read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from pipecat.frames.frames import (
    InterruptionFrame,
    TTSSpeakFrame,
    TTSTextFrame,
)
from pipecat.services.cartesia.tts import CartesiaHttpTTSService, CartesiaTTSService
from pipecat.services.tts_service import TextAggregationMode
from pipecat.tests.utils import SleepFrame, run_test

from tests.clients.pipecat_harness import SENTENCES, START_S, answer, report, speak

VOICE = "f786b574-daa5-4673-aa0c-cbe3e8534c02"


async def words_of(service: Any, sent: list[Any]) -> list[str]:
    """The words that were spoken, as their times tell them."""
    down, _ = await run_test(
        service, frames_to_send=[*sent, SleepFrame(3.0)], start_timeout=START_S
    )
    return [one.text for one in down if isinstance(one, TTSTextFrame)]


async def see(url: str, key: str) -> dict[str, Any]:
    socket = f"{url.replace('http', 'ws', 1)}/cartesia/tts/websocket"
    given: dict[str, Any] = {"api_key": key, "url": socket}
    settings = CartesiaTTSService.Settings(voice=VOICE)
    tokens = TextAggregationMode.TOKEN
    async with aiohttp.ClientSession() as session:
        over_http = CartesiaHttpTTSService(
            api_key=key,
            base_url=f"{url}/cartesia",
            aiohttp_session=session,
            settings=CartesiaHttpTTSService.Settings(voice=VOICE),
        )
        return {
            "speech": await speak(CartesiaTTSService(settings=settings, **given), answer()),
            "by tokens": await speak(
                CartesiaTTSService(settings=settings, text_aggregation_mode=tokens, **given),
                answer(),
            ),
            "words": await words_of(CartesiaTTSService(settings=settings, **given), answer()),
            "interrupted": await speak(
                CartesiaTTSService(settings=settings, **given),
                [*answer()[:2], SleepFrame(0.3), InterruptionFrame(), SleepFrame(0.3), *answer()],
            ),
            "over http": await speak(over_http, [TTSSpeakFrame("".join(SENTENCES))]),
            "wrong key": await speak(
                CartesiaTTSService(settings=settings, **{**given, "api_key": "sk_wrong"}), []
            ),
        }


report(see(*sys.argv[1:3]))
