"""Files in place of raw samples on `/ws/stt`."""

from collections.abc import AsyncIterator

import pytest

from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.stt.client import SttClient, audio, stt
from tests.hostile.audio_files import encode, tone
from tests.pipelines.stt.listening_doubles import loud, quiet


@pytest.fixture
async def client(stt_server: SocketServer) -> AsyncIterator[SttClient]:
    async with stt(stt_server) as made:
        yield made


@pytest.mark.parametrize("kind", ["webm", "ogg", "flac", "m4a", "wav", "mp3"])
async def test_a_file_in_binary_frames_is_named_and_costs_nothing(
    client: SttClient, kind: str
) -> None:
    file = b"ID3\x04\0\0\0\0\0\0" if kind == "mp3" else b""
    file += encode("mp3" if kind == "mp3" else kind, tone(1))
    await client.start(continuous_mode=True)
    for at in range(0, len(file), 4000):
        await client.socket.send(file[at : at + 4000])
    messages, code = await client.receive_rest()
    (error,) = [one["error"] for one in messages if one["type"] == "error"]
    assert f"({kind})" in error and "raw samples" in error and "/stt" in error
    assert code == 1008


async def test_linear_samples_behind_a_header_of_wav_are_heard(client: SttClient) -> None:
    await client.start(continuous_mode=True)
    header = encode("wav", tone(0.1))[:44]
    await client.send(audio(header, "linear", 16_000))
    await client.send_pcm(loud(1), quiet(1))
    assert (await client.receive_until("transcription"))[-1]["text"] == "text 0"
