"""Streams that are decoded while they come, by a process each."""

import asyncio
import os
import signal
import struct
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from models.audio import Pcm, float_to_pcm16, pcm16_to_float
from models.fairness.slots import FairSlots
from pipelines.audio.decode import decoder as decoder_module
from pipelines.audio.decode import live
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.decode.live import LiveDecoder
from pipelines.errors import InvalidAudio, Overloaded
from tests.hostile.audio_files import encode, tone, wav
from tests.hostile.live_audio import LIVE_CONTAINERS, PACKETS, RATE, in_messages, live_container
from tests.pipelines.audio.decode.test_decoder import pitch_hz

HELD_BACK_S = {"flac": 1.2}  # the parser looks at ten frames


@pytest.fixture
async def decoder() -> AsyncIterator[AudioDecoder]:
    async with AudioDecoder() as made:
        yield made


async def children(decoder: AudioDecoder) -> list[int]:
    pid = (await decoder._process.start()).pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def opened(decoder: AudioDecoder, kind: str = "", channels: int = 1) -> LiveDecoder:
    stream = LiveDecoder(decoder, "a workspace", channels, packets=kind == PACKETS)
    await stream.open()
    return stream


async def heard(stream: LiveDecoder, messages: Iterable[bytes], channel: int = 0) -> Pcm:
    """float32 [n] of a channel."""
    parts = [part for one in messages async for part in stream.decode(one)]
    return pcm16_to_float(b"".join(samples for at, samples in parts if at == channel))


async def rest(stream: LiveDecoder) -> Pcm:
    return pcm16_to_float(b"".join([samples async for _, samples in stream.finish()]))


@pytest.mark.parametrize("kind", [*LIVE_CONTAINERS, PACKETS])
async def test_a_live_stream_and_its_decoder_process_end_together(
    decoder: AudioDecoder, kind: str
) -> None:
    stream = await opened(decoder, kind)
    messages = in_messages(kind, tone(3, RATE))
    seconds, behind = 0.0, []
    for at, message in enumerate(messages):
        seconds += len(await heard(stream, [message])) / 16_000
        behind.append((at + 1) * 3 / len(messages) - seconds)
    assert len(await children(decoder)) == 1
    end = await rest(stream)
    await stream.close()
    assert await children(decoder) == []
    assert max(behind) < HELD_BACK_S.get(kind, 0.16)
    padding = 0 if kind in ("webm", "ogg", "flac", "wav") else 0.06
    assert -0.001 < seconds + len(end) / 16_000 - 3 < padding + 0.001


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("is_extensible", [False, True])
@pytest.mark.parametrize("is_growing", [False, True])
async def test_linear_wav_is_heard_as_it_comes(
    decoder: AudioDecoder, bits: int, is_extensible: bool, is_growing: bool
) -> None:
    pcm = np.stack([tone(1, 8000)] * 2, axis=1)
    samples = (pcm * 2**31).astype("<i4").view(np.uint8).reshape(-1, 4)[:, 4 - bits // 8 :]
    samples ^= 0x80 * (bits == 8)  # which have no sign
    data = wav(samples.tobytes(), channels=2, rate=8000, bits=bits)
    if is_extensible:
        guid = struct.pack("<HHI", 22, bits, 3) + b"\1\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
        data = data[:16] + bytes([40, 0, 0, 0, 0xFE, 0xFF]) + data[22:36] + guid + data[36:]
    at = data.index(b"data") + 4
    if is_growing:
        data = data[:at] + bytes(4) + data[at + 4 :]
    chunk = b"LIST" + (8).to_bytes(4, "little") + b"INFOISFT"
    data = data[:12] + chunk + data[12:] + (b"" if is_growing else chunk)
    stream = await opened(decoder)
    parts: list[Pcm] = []
    for start in range(0, len(data), 1000):
        parts.append(await heard(stream, [data[start : start + 1000]]))
        assert sum(map(len, parts)) / 16_000 > start / len(data) - 0.1
    whole = np.concatenate([*parts, await rest(stream)])
    assert len(whole) / 16_000 == pytest.approx(1, abs=0.001)
    assert np.abs(whole).max() == pytest.approx(0.4, abs=0.02)
    await stream.close()


@pytest.mark.parametrize(
    "content",
    [b"INFOICMT\x08\0\0\0my data\0", b"two data: ", wav(b"data", channels=8, rate=1), b"odd"],
    ids=["name", "description", "file", "padding"],
)
@pytest.mark.parametrize("at", [12, 36])
async def test_chunks_before_the_samples_of_live_wav_are_not_heard(
    decoder: AudioDecoder, content: bytes, at: int
) -> None:
    samples = float_to_pcm16(tone(1, 8000))
    data = wav(samples, rate=8000).replace(struct.pack("<I", len(samples)), b"\xff" * 4)
    chunk = b"bext" + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
    data = data[:at] + chunk + data[at:]
    stream = await opened(decoder)
    pcm = await heard(stream, [data[start : start + 25] for start in range(0, len(data), 25)])
    pcm = np.concatenate([pcm, await rest(stream)])
    await stream.close()
    assert len(pcm) / 16_000 == pytest.approx(1, abs=0.001)
    assert np.abs(pcm).max() == pytest.approx(0.4, abs=0.02)
    assert pitch_hz(pcm, 16_000) == pytest.approx(220, abs=1)


async def test_the_sound_of_a_stream_is_that_of_its_file(decoder: AudioDecoder) -> None:
    stream = await opened(decoder)
    pcm = await heard(stream, in_messages("webm", tone(3, RATE)))
    pcm = np.concatenate([pcm, await rest(stream)])
    await stream.close()
    assert pitch_hz(pcm, 16_000) == pytest.approx(220, abs=1)
    assert np.abs(pcm).max() == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("kind", ["webm", "m4a", "mp3"])
async def test_a_trickle_of_single_bytes_is_decoded_too(decoder: AudioDecoder, kind: str) -> None:
    stream = await opened(decoder)
    data = live_container(kind, tone(0.4, RATE))
    pcm = await heard(stream, (data[at : at + 1] for at in range(len(data))))
    pcm = np.concatenate([pcm, await rest(stream)])
    await stream.close()
    assert len(pcm) / 16_000 == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("kind", ["webm", "ogg", "m4a"])
async def test_a_recorder_that_begins_again_goes_on_in_the_same_stream(
    decoder: AudioDecoder, kind: str
) -> None:
    stream = await opened(decoder)
    pcm = await heard(stream, 2 * in_messages(kind, tone(1, RATE)))
    pcm = np.concatenate([pcm, await rest(stream)])
    await stream.close()
    assert len(pcm) / 16_000 == pytest.approx(2, abs=0.1)


async def test_channels_are_heard_apart_or_together(decoder: AudioDecoder) -> None:
    left, right = tone(1, RATE, 200), tone(1, RATE, 600)
    messages = in_messages("wav", np.stack([left, right]))
    for channel, hz in enumerate((200, 600)):
        stream = await opened(decoder, channels=2)
        pcm = await heard(stream, messages, channel)
        await stream.close()
        assert pitch_hz(pcm, 16_000) == pytest.approx(hz, abs=5)
    stream = await opened(decoder, channels=2)
    with pytest.raises(InvalidAudio, match="one channel"):
        await heard(stream, in_messages("webm", left))
    await stream.close()


@pytest.mark.parametrize("kind", LIVE_CONTAINERS)
async def test_a_stream_that_is_cut_off_gives_what_was_whole(
    decoder: AudioDecoder, kind: str
) -> None:
    stream = await opened(decoder)
    data = live_container(kind, tone(2, RATE))
    pcm = await heard(stream, [data[: len(data) * 3 // 5]])
    pcm = np.concatenate([pcm, await rest(stream)])
    await stream.close()
    assert len(pcm) / 16_000 == pytest.approx(1.2, abs=0.3 if kind == "flac" else 0.15)
    assert await children(decoder) == []


@pytest.mark.parametrize("kind", ["webm", "ogg", "m4a", "mp3", "aac", "flac"])
async def test_a_stream_that_changes_into_garbage_is_refused_after_its_audio(
    decoder: AudioDecoder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(live, "MOST_SILENT_BYTES", 2**17)
    stream = await opened(decoder)
    data = live_container(kind, tone(2, RATE))
    pcm = await heard(stream, [data[: len(data) * 3 // 4]])
    assert len(pcm) / 16_000 > (0.3 if kind == "flac" else 1.2)
    garbage = np.random.default_rng(7).bytes(2**20)
    with pytest.raises(InvalidAudio):
        await heard(stream, [garbage])
    await stream.close()
    assert await children(decoder) == []


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is not audio, but it is as long as a header: " * 4,
        wav(bytes(4000), rate=0xFFFF_FFF0),
        wav(bytes(4000), channels=65_535),
        wav(bytes(4000), rate=0),
        encode("webm", tone(1, 48_000), 48_000)[:200] + bytes(2**21),
        b"ID3\4\0\0" + b"\x7f" * 4 + bytes(2**21),  # a tag of 256 MiB
    ],
)
async def test_what_is_no_audio_is_refused(decoder: AudioDecoder, data: bytes) -> None:
    stream = await opened(decoder)
    with pytest.raises(InvalidAudio):
        await heard(stream, [data])
        await rest(stream)
    await stream.close()
    assert await children(decoder) == []


async def test_bytes_that_are_no_packet_of_opus_are_refused(decoder: AudioDecoder) -> None:
    for wrong in (b"\xff" * 3, bytes(live.MESSAGE_BYTES + 1)):
        stream = await opened(decoder, PACKETS)
        with pytest.raises(InvalidAudio, match="packet of Opus"):
            await heard(stream, [wrong])
        await stream.close()


async def test_a_stream_without_audio_ends_without_an_error(decoder: AudioDecoder) -> None:
    stream = await opened(decoder)
    assert len(await rest(stream)) == 0
    await stream.close()
    await stream.close()


async def test_the_end_of_one_process_ends_its_stream_alone(decoder: AudioDecoder) -> None:
    messages = in_messages("webm", tone(3, RATE))
    one, other = await opened(decoder), await opened(decoder)
    await heard(one, messages[:4])
    (pid,) = await children(decoder)
    await heard(other, messages[:4])
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(InvalidAudio, match="cannot be decoded"):
        await heard(one, messages[4:])
    assert len(await heard(other, messages[4:])) > 16_000
    await one.close()
    await other.close()


async def test_without_the_process_that_forks_a_stream_is_told_to_connect_again(
    decoder: AudioDecoder,
) -> None:
    messages = in_messages("webm", tone(3, RATE))
    stream = await opened(decoder)
    await heard(stream, messages[:4])
    (await decoder._process.start()).kill()
    with pytest.raises(Overloaded, match="connect again"):
        await heard(stream, messages[4:])
    await stream.close()
    again = await opened(decoder)
    assert len(await heard(again, messages)) > 16_000
    await again.close()


async def test_a_process_that_spins_is_ended_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "tests.pipelines.audio.decode.hostile_worker"
    monkeypatch.setattr(decoder_module, "WORKER_MODULE", name)
    monkeypatch.setattr(live, "ANSWER_S", 0.3)
    messages = in_messages("webm", tone(1, RATE))
    async with AudioDecoder() as decoder:
        run = decoder._process.run
        with monkeypatch.context() as replaced:
            replaced.setattr(
                decoder._process, "run", lambda job, *files: run({**job, "attack": "spin"}, *files)
            )
            stream = await opened(decoder)
            with pytest.raises(InvalidAudio, match="limits"):
                await heard(stream, messages)
            await stream.close()
        assert await children(decoder) == []


async def test_places_are_few_and_come_back(decoder: AudioDecoder) -> None:
    decoder.live_places = FairSlots(1, 0, partial(Overloaded, "too many streams"))
    one, other = await opened(decoder), LiveDecoder(decoder, "another")
    with pytest.raises(Overloaded, match="too many streams"):
        await other.open()
    await one.close()
    await other.open()
    await other.close()


async def test_a_stream_that_is_left_in_the_midst_leaves_no_process(decoder: AudioDecoder) -> None:
    stream = await opened(decoder)
    work = asyncio.create_task(heard(stream, in_messages("webm", tone(30, RATE))))
    while not await children(decoder):
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await stream.close()
    assert await children(decoder) == []
