"""Validation of the recordings of a custom voice, and its error messages."""

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig, SampleRules
from models.audio import Pcm, resample
from models.registry import SPEAKER, VAD
from models.speaker.base import Embedding, Embeddings, SpeakerEncoder
from pipelines.audio.decode.decoder import DecodedAudio
from pipelines.audio.measures import clipped_share, pitch_hz
from pipelines.errors import AudioTooLong, InvalidAudio, PipelineError
from pipelines.voices.checks import (
    CUT_HZ,
    CheckedSamples,
    Sample,
    SampleChecker,
    SampleFile,
    check_speakers,
)
from tests.kept_decoder import KeptDecoder
from tests.models.configured import configured
from tests.models.sounds import wordless
from tests.models.speaker.bands import BandsEngine
from tests.pipelines.voices.recordings import (
    RATE,
    called,
    clipped,
    echoing,
    encoded,
    good_files,
    noisy,
    recording,
    squeezed,
    wav,
)

RULES = load_yaml(CustomVoicesConfig, "custom_voices").samples


@pytest.fixture
async def checker() -> AsyncIterator[SampleChecker]:
    async with KeptDecoder() as decoder:
        yield SampleChecker(decoder, configured(VAD, "silero"), BandsEngine, RULES)


def paused(pcm: Pcm) -> Pcm:
    """With as much silence after each second as makes less than 40% of it speech."""
    silence = np.zeros(2 * RATE, np.float32)
    return np.concatenate([part for second in np.split(pcm, 9) for part in (second, silence)])


def written(folder: Path, *files: tuple[str, bytes]) -> list[SampleFile]:
    given = []
    for number, (name, content) in enumerate(files):
        path = folder / str(number)
        path.write_bytes(content)
        given.append(SampleFile(name, path))
    return given


async def check(checker: SampleChecker, folder: Path, *files: tuple[str, bytes]) -> CheckedSamples:
    return await checker.check(written(folder, *files))


async def refusal(
    checker: SampleChecker, folder: Path, *files: tuple[str, bytes]
) -> tuple[str, str]:
    with pytest.raises(PipelineError) as raised:
        await check(checker, folder, *files)
    return raised.value.code, str(raised.value)


async def test_good_recordings_of_every_format_pass(checker: SampleChecker, tmp_path: Path) -> None:
    checked = await check(checker, tmp_path, *good_files())
    assert [one.media_type for one in checked.samples] == ["audio/wav", "audio/flac", "audio/mpeg"]
    assert all(one.duration_s == pytest.approx(42, abs=0.1) for one in checked.samples)
    assert checked.pitch_hz is not None and 140 < checked.pitch_hz < 300  # a woman's
    assert 5 * RATE < len(checked.excerpt) <= 20 * RATE


BAD: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "page": (lambda: b"<!DOCTYPE html>" * 20, "invalid_audio", "but text, such as a web page"),
    "noise of bytes": (lambda: bytes(range(128, 256)), "invalid_audio", "WebM or AAC audio"),
    "nothing": (lambda: b"", "invalid_audio", "is empty"),
    "head alone": (lambda: wav(recording(4, 12))[:44], "invalid_audio", "no audio"),
    "short": (lambda: wav(recording(4, 8)), "invalid_audio", "8.0 seconds long; each file must"),
    "long": (lambda: wav(recording(4, 63)), "audio_too_long", "too long; each file must last 10"),
    "silence": (lambda: wav(np.zeros(12 * RATE, np.float32)), "invalid_audio", "little speech"),
    "noise": (lambda: wav(wordless(12)["pink noise"]), "invalid_audio", "too little speech"),
    "music": (lambda: wav(wordless(12)["melody"]), "invalid_audio", "too little speech"),
    "whisper": (lambda: wav(recording(4, 20) * 0.004), "invalid_audio", "and at least -50 are"),
    "far": (lambda: wav(recording(4, 20) * 0.0006), "invalid_audio", "and at least -50 are needed"),
    "call": (lambda: wav(called(recording(4, 20))), "invalid_audio", "is of telephone quality"),
    "paused call": (lambda: wav(paused(called(recording(4, 9)))), "invalid_audio", "telephone"),
    "pauses": (lambda: wav(paused(recording(4, 9))), "invalid_audio", "too little speech"),
    "few bits": (lambda: squeezed(recording(4, 20), 12_000), "invalid_audio", "24 kbit/s or more"),
    "noisy": (lambda: wav(noisy(recording(4, 20), 4)), "invalid_audio", "is too noisy"),
    "clipped": (lambda: wav(clipped(recording(4, 20))), "invalid_audio", "is clipped"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_recording_is_refused_with_its_file_name(
    checker: SampleChecker, tmp_path: Path, kind: str
) -> None:
    make, code, words = BAD[kind]
    bad = (f"{kind}.bin", make())
    found, message = await refusal(checker, tmp_path, good_files()[0], bad, good_files()[1])
    assert found == code and f"'{kind}.bin'" in message, message
    assert words in message


@pytest.mark.parametrize("bad", ["too little speech", "too quiet", "too noisy"])
async def test_a_measure_just_below_its_limit_is_not_shown_as_the_limit(
    checker: SampleChecker, tmp_path: Path, bad: str
) -> None:
    recorded = ("one.wav", wav(recording(4, 20)))
    checker.rules = RULES.model_copy(update={"min_total_seconds": 10})
    of_file = (await check(checker, tmp_path, recorded)).samples[0]
    just_above = {
        "too little speech": {"min_speech_share": of_file.speech_share + 0.001},
        "too quiet": {"min_level_dbfs": of_file.level_dbfs + 0.01},
        "too noisy": {"min_snr_db": of_file.snr_db + 0.01},
    }
    checker.rules = RULES.model_copy(update=just_above[bad])
    message = (await refusal(checker, tmp_path, recorded))[1]
    value, limit = re.findall(r"-?\d+(?:\.\d+)?", message.partition(bad)[2])[:2]
    assert float(value) < float(limit)


def at_speed(number: int, factor: float, seconds: float) -> Pcm:
    """The speaker of `recording` on a tape that runs slowly (a factor above 1) or fast."""
    pcm = resample(recording(number, seconds / factor + 1), RATE, round(RATE * factor))
    return pcm[: int(seconds * RATE)]


async def test_two_speakers_by_turns_are_refused(checker: SampleChecker, tmp_path: Path) -> None:
    rules = load_yaml(CustomVoicesConfig, "custom_voices").clips
    real = SampleChecker(
        checker._decoder, checker.vad, lambda: configured(SPEAKER, "resemblyzer"), rules
    )
    ann, bob = at_speed(5, 0.8, 30), at_speed(1, 1.75, 30)
    assert await check(real, tmp_path, ("ann.wav", wav(ann)))
    is_ann = np.arange(len(ann)) // (6 * RATE) % 2 == 0
    both = np.where(is_ann, ann, bob)
    code, message = await refusal(real, tmp_path, ("both.wav", wav(both)))
    assert code == "invalid_audio" and "'both.wav' seems to hold more than one" in message
    stereo = wav(np.where(is_ann, ann, 0), np.where(is_ann, 0, bob))
    assert (await refusal(real, tmp_path, ("both.wav", stereo)))[0] == code


ALTERED: dict[str, Callable[[Pcm], Pcm]] = {
    "noise": lambda pcm: noisy(pcm, 12),
    "echo": lambda pcm: echoing(pcm, 0.5),
    "another pitch": lambda pcm: resample(pcm, round(RATE * 1.15), RATE),
}


@pytest.mark.parametrize("kind", ALTERED)
@pytest.mark.parametrize("deep", [False, True])
async def test_one_speaker_passes_where_half_the_recording_sounds_different(
    checker: SampleChecker, tmp_path: Path, kind: str, deep: bool
) -> None:
    rules = load_yaml(CustomVoicesConfig, "custom_voices").clips
    real = SampleChecker(
        checker._decoder, checker.vad, lambda: configured(SPEAKER, "resemblyzer"), rules
    )
    first, second = np.split(recording(1, 30, deep=deep), 2)
    assert await check(real, tmp_path, ("ann.wav", wav(np.append(first, ALTERED[kind](second)))))


async def test_a_recording_in_a_format_that_is_not_stored_is_converted(
    checker: SampleChecker, tmp_path: Path
) -> None:
    files = written(tmp_path, ("phone.ogg", encoded(recording(4, 12), "ogg")), good_files()[0])
    phone, stored = await checker.convert(files)
    assert (phone.name, stored) == ("phone.ogg", files[1])
    assert phone.path.read_bytes()[:4] == b"RIFF"


async def test_the_same_recording_twice_is_refused(checker: SampleChecker, tmp_path: Path) -> None:
    name, content = good_files()[0]
    code, message = await refusal(checker, tmp_path, (name, content), ("again.wav", content))
    assert code == "validation_error" and "'again.wav' is the same as 'one.wav'" in message


async def test_less_than_two_minutes_are_refused(checker: SampleChecker, tmp_path: Path) -> None:
    code, message = await refusal(checker, tmp_path, *good_files()[:2])
    assert code == "validation_error" and "84.0 seconds in all; at least 120" in message


async def test_a_file_of_another_speaker_is_refused(checker: SampleChecker, tmp_path: Path) -> None:
    rules = SampleRules(**{**RULES.model_dump(), "min_similarity": 0.9})  # for an average spectrum
    strict = SampleChecker(checker._decoder, checker.vad, checker.encoder, rules)
    other = ("other.wav", wav(recording(5, 42, deep=True)))
    code, message = await refusal(strict, tmp_path, *good_files()[:2], other)
    assert code == "validation_error" and "'other.wav' does not sound like" in message


def embeddings_of(*speakers: int) -> Embeddings:
    """Speaker embeddings [n, 256], one per excerpt, with a little noise."""
    random = np.random.default_rng(sum(speakers))
    pieces = np.zeros((len(speakers), 256), np.float32)
    for row, speaker in enumerate(speakers):
        pieces[row, speaker] = 1
        pieces[row, 100:] = 0.02 * random.standard_normal(156)
    return np.asarray(pieces / np.linalg.norm(pieces, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize(
    ("speakers", "message"),
    [
        ({"a": (1, 1, 1), "b": (2, 2), "c": (2, 2, 2)}, "'a' does not sound like the speaker of"),
        ({"a": (1, 1), "b": (2, 2), "c": (1, 1), "d": (2, 2)}, "one speaker"),
        ({"a": (1, 1, 1), "b": (1, 1, 2), "c": (1, 1, 1)}, "'b' seems to hold more than one"),
    ],
)
def test_recordings_of_several_speakers_are_refused(
    speakers: dict[str, tuple[int, ...]], message: str
) -> None:
    pieces = [embeddings_of(*excerpts) for excerpts in speakers.values()]
    with pytest.raises(PipelineError, match=message):
        check_speakers(list(speakers), pieces, RULES)
    check_speakers(["a", "b"], [embeddings_of(2, 2), embeddings_of(2, 2, 2)], RULES)


async def test_a_second_speaker_on_the_other_channel_is_refused(
    checker: SampleChecker, tmp_path: Path
) -> None:
    """Both speak all the time: their mean is the same from beginning to end."""
    interview = wav(recording(1, 42), recording(2, 42, deep=True))
    checker.encoder = lambda: configured(SPEAKER, "resemblyzer")
    files = written(tmp_path, ("long.wav", interview), *good_files()[1:])
    for check_or_cut, given in ((checker.check, files), (checker.cut, files[:1])):
        with pytest.raises(InvalidAudio, match=r"'long.wav': each channel has another speaker"):
            await check_or_cut(given)


@pytest.mark.parametrize("kind", ["echo", "muffled", "noise"])
async def test_one_speaker_with_two_microphones_passes(
    checker: SampleChecker, tmp_path: Path, kind: str
) -> None:
    rules = load_yaml(CustomVoicesConfig, "custom_voices").clips
    real = SampleChecker(
        checker._decoder, checker.vad, lambda: configured(SPEAKER, "resemblyzer"), rules
    )
    close = recording(1, 30)
    far = {
        "echo": 4 * echoing(0.25 * close, 2.0),
        "muffled": resample(resample(close, RATE, 1500), 1500, RATE),
        "noise": noisy(0.3 * close, 20),
    }[kind]
    assert await real.check(written(tmp_path, ("a.wav", wav(close, far))))


@pytest.mark.parametrize("second", ["silence", "delay", "leak", "opposite"])
async def test_a_stereo_recording_of_one_speaker_passes(
    checker: SampleChecker, tmp_path: Path, second: str
) -> None:
    pcm = recording(1, 42)
    other = recording(2, 42, deep=True)
    channels = {
        "silence": 0 * pcm,
        "delay": 0.8 * np.roll(pcm, 20),
        "leak": 0.02 * other,
        "opposite": -pcm,
    }
    stereo = ("stereo.wav", wav(pcm, np.asarray(channels[second], np.float32)))
    assert len((await check(checker, tmp_path, stereo, *good_files()[1:])).samples) == 3


@pytest.mark.parametrize("hz", [80, 120, 210, 330])
def test_the_pitch_of_a_harmonic_tone_is_measured(hz: int) -> None:
    time_s = np.arange(2 * RATE) / RATE
    buzz = sum(np.sin(2 * np.pi * hz * k * time_s) / k for k in range(1, 8))
    found = pitch_hz(np.asarray(0.1 * buzz, np.float32))
    assert found == pytest.approx(hz, rel=0.02)


def test_noise_and_silence_have_no_pitch() -> None:
    random = np.random.default_rng(1)
    assert pitch_hz(random.standard_normal(2 * RATE).astype(np.float32)) is None
    assert pitch_hz(np.zeros(2 * RATE, np.float32)) is None
    assert pitch_hz(np.zeros(10, np.float32)) is None


def test_clipping_is_detected_at_any_level() -> None:
    clean = recording(6, 10)
    assert clipped_share(clean) < RULES.max_clipped_share / 4
    for gain in (1.0, 0.2):
        assert clipped_share(clipped(clean) * gain) > RULES.max_clipped_share
    assert clipped_share(np.zeros(100, np.float32)) == 0


class FixedEncoder:
    """Returns the same speaker embedding for all audio."""

    def embed(self, pcm: Pcm) -> Embedding:
        return np.asarray(np.eye(1, 256)[0], np.float32)


@pytest.mark.parametrize(("likeness", "passes"), [(0.95, True), (0.7, False)])
async def test_the_speaker_of_the_consent_sentence_must_match_the_other_files(
    likeness: float, passes: bool
) -> None:
    other = np.zeros(256, np.float32)
    other[:2] = likeness, np.sqrt(1 - likeness**2)
    own = np.eye(1, 256, 5, dtype=np.float32)[0]  # of the file itself, which is not compared
    speakers = np.stack([own, other, other])
    pcm = np.zeros(RATE, np.float32)
    samples = tuple(
        Sample(SampleFile(name, Path(name)), "audio/wav", 20.0, 0.8, 30.0, -20.0, 0.0)
        for name in ("a.wav", "b.wav", "c.wav")
    )
    checked = CheckedSamples(samples, None, pcm, (pcm, pcm, pcm), speakers)
    encoder = cast(SpeakerEncoder, FixedEncoder())
    checker = SampleChecker(cast(Any, None), cast(Any, None), lambda: encoder, RULES)
    if passes:
        await checker.check_speaker(pcm, checked, 0, 0.8)
    else:
        with pytest.raises(PipelineError, match="first speaker of 'a.wav'"):
            await checker.check_speaker(pcm, checked, 0, 0.8)


@pytest.mark.parametrize(("duration_s", "decoded"), [(250.0, 3), (61.0, 6)])
async def test_recordings_beyond_the_limit_are_not_decoded(
    tmp_path: Path, duration_s: float, decoded: int
) -> None:
    allowed: list[float] = []

    class Decoder:
        async def decode(self, path: Path, max_duration_s: float, **_: Any) -> DecodedAudio:
            allowed.append(max_duration_s)
            if duration_s > max_duration_s:
                raise AudioTooLong("too long")
            return DecodedAudio(np.zeros(100, np.float32), CUT_HZ, duration_s, "wav")

    checker = SampleChecker(cast(Any, Decoder()), cast(Any, None), BandsEngine, RULES)
    files = written(tmp_path, *((str(number), b"") for number in range(10)))
    with pytest.raises(PipelineError, match="files: more than 600 seconds, or than 10 files"):
        await checker.cut(files)
    assert allowed == [600 - duration_s * number for number in range(decoded)]
