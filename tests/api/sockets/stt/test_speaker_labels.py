"""Speaker labels of `/ws/stt`."""

from typing import Any

import pytest

from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.stt.client import finals, stt
from tests.pipelines.stt.listening_doubles import quiet, tone


async def test_finals_and_words_have_speaker_labels_when_they_are_asked_for(
    stt_server: SocketServer,
) -> None:
    async with stt(stt_server) as client:
        await client.start(continuous_mode=True, speaker_labels=True)
        for hz in (200, 3000, 200):
            await client.send_pcm(tone(hz, 2), quiet(1))
        heard = finals((await client.stop())[0])
    assert [final["speaker"] for final in heard] == ["A", "B", "A"]
    labels = [[word["speaker"] for word in final["words"]] for final in heard]
    assert labels == [["A"], ["B"], ["A"]]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"speaker_labels": "yes"}, "speaker_labels"),
        ({"known_speakers": "all"}, "known_speakers"),
        ({"known_speakers": [1]}, "known_speakers"),
        ({"known_speakers": ["x" * 41]}, "known_speakers"),
        ({"known_speakers": ["x"] * 101}, "known_speakers"),
        ({"known_speakers": ["me"]}, "known_speakers: the workspace has no speaker of that id"),
    ],
)
async def test_a_start_with_wrong_speakers_can_be_sent_again(
    stt_server: SocketServer, config: dict[str, Any], message: str
) -> None:
    async with stt(stt_server) as client:
        error = await client.start(**config)
        assert error["type"] == "error" and message in error["error"]
        assert (await client.start(known_speakers=True))["type"] == "connected"
