"""The pool of decoder processes."""

import asyncio
import gc
import io
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from configs.environment import MODEL_NICENESS
from models.audio import AudioChunk, Pcm
from pipelines.audio.decode import decoder as decoder_module
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.encode.encoder import CODECS, FileEncoder, FileFormat
from pipelines.errors import AudioTooLong, InvalidAudio, Overloaded
from tests.hostile.audio_files import CONTAINERS, encode, tone, two_streams, video, wav
from tests.patience import PATIENCE_S, until


@pytest.fixture
async def decoder() -> AsyncIterator[AudioDecoder]:
    async with AudioDecoder() as made:
        yield made


def children_of(process: asyncio.subprocess.Process) -> Path:
    """The file with the numbers of the processes that it has forked."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children")


def pitch_hz(pcm: Pcm, rate: int) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(pcm))) * rate / len(pcm))


@pytest.mark.parametrize("kind", CONTAINERS)
async def test_every_container_format_is_decoded_to_the_same_tone(
    decoder: AudioDecoder, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "0"
    path.write_bytes(encode(kind, tone(2, 48_000), 48_000))
    audio = await decoder.decode(path)
    assert audio.format == kind
    assert audio.pcm.dtype == np.float32
    assert audio.duration_s == pytest.approx(2, abs=0.1)
    assert len(audio.pcm) / audio.sample_rate == pytest.approx(audio.duration_s, abs=0.01)
    assert pitch_hz(audio.pcm, audio.sample_rate) == pytest.approx(220, abs=2)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["mp3", "flac", "ogg"])
async def test_an_id3_tag_before_any_stream_is_skipped(
    decoder: AudioDecoder, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "0"
    tag = b"ID3\3\0\0\0\0\2\x2c" + bytes(300)
    path.write_bytes(tag + encode(kind, tone(2, 48_000), 48_000))
    audio = await decoder.decode(path)
    assert (audio.format, round(audio.duration_s)) == (kind, 2)


async def test_webm_of_gstreamer_is_decoded(decoder: AudioDecoder, tmp_path: Path) -> None:
    """The name of its format ends with a zero, which its size and that of the header include."""
    header, rest = b"\x1a\x45\xdf\xa3", encode("webm", tone(2, 48_000), 48_000)[4:]
    name, with_zero = b"\x42\x82\x84webm", b"\x42\x82\x85webm\0"
    path = tmp_path / "0"
    path.write_bytes(header + bytes([rest[0] + 1]) + rest[1:].replace(name, with_zero, 1))
    assert (await decoder.decode(path)).duration_s == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(("codec", "rate"), [("libopencore_amrnb", 8000), ("aac", 16_000)])
async def test_recordings_of_telephones_are_decoded(
    decoder: AudioDecoder, tmp_path: Path, codec: str, rate: int
) -> None:
    path = tmp_path / "0"
    with av.open(path, "w", format="3gp") as container:
        stream: Any = container.add_stream(codec, rate=rate, layout="mono")
        samples = (tone(2, rate) * 32767).astype("i2")
        frame = av.AudioFrame.from_ndarray(samples[None, :], "s16", "mono")
        frame.sample_rate = rate
        for part in (*av.AudioResampler(stream.format.name, "mono", rate).resample(frame), None):
            container.mux(stream.encode(part))
    audio = await decoder.decode(path)
    assert audio.format == "m4a"
    assert audio.duration_s == pytest.approx(2, abs=0.2)
    assert pitch_hz(audio.pcm, audio.sample_rate) == pytest.approx(220, abs=2)


@pytest.mark.parametrize("kind", CODECS)
async def test_what_this_service_writes_it_reads(
    decoder: AudioDecoder, tmp_path: Path, kind: FileFormat
) -> None:
    path, encoder = tmp_path / "0", FileEncoder(kind, 24_000)
    made = encoder.encode(AudioChunk(tone(2, 24_000), 24_000))
    path.write_bytes(b"".join([*made, *encoder.flush()]))
    audio = await decoder.decode(path)
    assert audio.duration_s == pytest.approx(2, abs=0.1)
    assert pitch_hz(audio.pcm, audio.sample_rate) == pytest.approx(220, abs=2)


async def test_channels_are_mixed_down_to_mono(decoder: AudioDecoder, tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(wav(np.tile(np.array([16384, 0], "<i2"), 16_000).tobytes(), channels=2))
    audio = await decoder.decode(path)
    assert audio.pcm == pytest.approx(np.full(16_000, 0.25))


@pytest.mark.parametrize(
    ("container", "codecs", "default", "played"),
    [
        ("webm", ("libopus", "libopus"), 1, 1),
        ("webm", ("libopus", "libopus"), None, 0),
        ("mp4", ("aac", "aac"), 1, 1),
        ("mp4", ("aac", "aac"), 0, 0),
        ("mp4", ("ac3", "aac"), 0, 1),  # the default cannot be decoded
    ],
)
async def test_of_several_tracks_the_one_that_players_choose_is_decoded(
    decoder: AudioDecoder,
    tmp_path: Path,
    container: str,
    codecs: tuple[str, str],
    default: int | None,
    played: int,
) -> None:
    path = tmp_path / "0"
    path.write_bytes(two_streams(tone(1, 48_000), 48_000, container, codecs, default))
    level = (await decoder.decode(path)).pcm.std()
    assert level == pytest.approx(tone(1).std() * (1, 0.5)[played], rel=0.1)


async def test_too_long_decoded_audio_is_refused(decoder: AudioDecoder, tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(encode("flac", tone(10)))
    with pytest.raises(AudioTooLong):
        await decoder.decode(path, max_duration_s=5)
    audio = await decoder.decode(path, max_duration_s=5, stop_s=2)
    assert 2 <= audio.duration_s < 5


async def test_a_killed_worker_is_replaced_and_the_file_is_decoded(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    path.write_bytes(wav(tone(1).tobytes(), code=3, bits=32))
    await decoder.start()
    process = await decoder._process.start()
    process.kill()
    assert (await decoder.decode(path)).duration_s == pytest.approx(1)


async def test_a_file_whose_worker_is_killed_meanwhile_is_decoded_from_its_start(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    path.write_bytes(encode("flac", tone(300)))
    process = await decoder._process.start()
    children = children_of(process)
    work = asyncio.create_task(decoder.decode(path))
    await until(lambda: children.read_text() or work.done(), every_s=0)
    process.kill()
    audio = await work
    assert audio.duration_s == pytest.approx(300)
    assert np.abs(audio.pcm - tone(300)).max() < 1e-3


async def test_files_are_decoded_at_a_lower_priority_than_requests_are_answered(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    path.write_bytes(encode("flac", tone(600)))
    process = await decoder._process.start()
    children = children_of(process)
    work = asyncio.create_task(decoder.decode(path))
    seen = set[int]()
    async with asyncio.timeout(PATIENCE_S):
        while not work.done():
            with suppress(OSError):  # it has ended
                seen |= {
                    os.getpriority(os.PRIO_PROCESS, int(one))
                    for one in children.read_text().split()
                }
            await asyncio.sleep(0.001)
    await work
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert min(own + MODEL_NICENESS, 19) in seen
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == own


async def test_a_decoder_that_does_not_start_is_not_blamed_on_the_file(
    decoder: AudioDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_module, "WORKER_MODULE", "tests.pipelines.no_such_worker")
    path = tmp_path / "0"
    path.write_bytes(wav(b"\0\0" * 16_000))
    with pytest.raises(Overloaded, match="does not start"):
        await decoder.decode(path)


async def test_a_worker_that_does_not_answer_is_killed_after_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0"
    path.write_bytes(wav(b"\0\0" * 16_000))
    monkeypatch.setattr(decoder_module, "KILL_TIMEOUT_S", 0.1)
    async with AudioDecoder(timeout_s=0.2) as decoder:
        process = await decoder._process.start()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(InvalidAudio):
            await decoder.decode(path)
        assert process.returncode is not None


async def test_a_cancelled_decoding_kills_a_worker_that_does_not_answer(
    decoder: AudioDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_module, "KILL_TIMEOUT_S", 0.1)
    path = tmp_path / "0"
    path.write_bytes(encode("flac", tone(300)))
    await decoder.start()
    process = await decoder._process.start()
    process.send_signal(signal.SIGSTOP)  # so that it never ends
    sent, send_fds = asyncio.Event(), socket.send_fds

    def send(control: socket.socket, job: list[bytes], files: list[int]) -> int:
        sent.set()
        return send_fds(control, job, files)

    monkeypatch.setattr(socket, "send_fds", send)
    work = asyncio.create_task(decoder.decode(path))
    async with asyncio.timeout(PATIENCE_S):
        await sent.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert process.returncode is not None
    path.write_bytes(wav(b"\0\0" * 16_000))
    assert (await decoder.decode(path)).duration_s == pytest.approx(1)


async def test_a_cancelled_start_leaves_no_socket_open(decoder: AudioDecoder) -> None:
    starting = asyncio.create_task(decoder.start())
    await asyncio.sleep(0)  # it makes the socket, and the process is not there yet
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await decoder.close()
    gc.collect()  # a socket that is still open fails the test


async def test_a_full_decoder_queue_raises_decoder_busy(tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(wav(b"\0\0" * 16_000))
    async with AudioDecoder(workers=1, max_waiting=0) as decoder:
        async with decoder._slots.slot("another"):
            with pytest.raises(Overloaded):
                await decoder.decode(path)
        assert (await decoder.decode(path)).duration_s == 1


async def test_a_cancelled_decoding_ends_its_child_and_no_other(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    path.write_bytes(encode("flac", tone(60)))
    process = await decoder._process.start()
    work = [asyncio.create_task(decoder.decode(path, owner=number)) for number in range(2)]
    children = children_of(process)
    await until(lambda: len(children.read_text().split()) == 2 or work[0].done(), every_s=0)
    work[0].cancel()
    await asyncio.wait([work[0]])
    assert (await work[1]).duration_s == pytest.approx(60)
    assert children.read_text().split() == []
    assert await decoder._process.start() is process


@pytest.mark.parametrize(
    ("container", "codec", "sound"),
    [("mp4", "mpeg4", "aac"), ("mov", "mpeg4", "aac"), ("webm", "libvpx", "libopus")],
)
async def test_the_sound_of_a_video_is_decoded(
    decoder: AudioDecoder, tmp_path: Path, container: str, codec: str, sound: str
) -> None:
    path = tmp_path / "0"
    path.write_bytes(video(tone(2, 48_000), 48_000, container, codec, sound))
    decoded = await decoder.decode(path)
    assert decoded.duration_s == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(("codec", "container"), [("adpcm_yamaha", "wav"), ("ac3", "mp4")])
async def test_codecs_that_are_not_in_the_list_are_refused(
    decoder: AudioDecoder, tmp_path: Path, codec: str, container: str
) -> None:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as made:
        stream: Any = made.add_stream(codec, rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone(1, 48_000)[None, :], "flt", "mono")
        frame.sample_rate = 48_000
        resampler = av.AudioResampler(stream.codec_context.format, "mono", 48_000)
        for resampled in resampler.resample(frame):
            made.mux(stream.encode(resampled))
        made.mux(stream.encode(None))
    path = tmp_path / "0"
    path.write_bytes(file.getvalue())
    with pytest.raises(InvalidAudio):
        await decoder.decode(path)


async def test_audio_that_is_cut_into_too_many_frames_is_refused(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    path.write_bytes(encode("flac", tone(30), frame_size="16"))
    with pytest.raises(InvalidAudio, match="too many pieces"):
        await decoder.decode(path)
    path.write_bytes(encode("ogg", tone(60, 48_000), 48_000, frame_duration="2.5"))
    assert (await decoder.decode(path)).duration_s == pytest.approx(60, abs=0.1)


async def test_the_process_inherits_no_secrets_and_no_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_TOKEN_KEY", "secret")
    with (tmp_path / "secrets.json").open("w") as secrets:
        os.set_inheritable(secrets.fileno(), True)
        async with AudioDecoder() as decoder:
            process = await decoder._process.start()
            about = Path(f"/proc/{process.pid}")
            assert b"secret" not in (about / "environ").read_bytes()
            assert {file.name for file in (about / "fd").iterdir()} == {"0", "1", "2"}
