"""Validates the recordings of a custom voice: format, length, quality, and that one person speaks.
Error messages name the file."""

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.schema.voices import SampleRules
from models.audio import Pcm, float_to_pcm16
from models.fairness.shares import Owner
from models.figures import beside
from models.speaker.base import Embeddings, SpeakerEncoder, mean_embedding
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from pipelines.audio.decode.decoder import AudioDecoder, DecodedAudio, head_of, sniff
from pipelines.audio.decode.stream import as_wav
from pipelines.audio.levels import levelled
from pipelines.audio.measures import (
    TELEPHONE_HZ,
    clipped_share,
    envelope_correlation,
    level_dbfs,
    pitch_hz,
    snr_db,
    speech_only,
    treble_db,
)
from pipelines.errors import AudioTooLong, FileTooLarge, InvalidAudio, InvalidRequest, PipelineError
from pipelines.stt.diarization import has_several_speakers

MEDIA_TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav", "flac": "audio/flac"}
LENGTH_SLACK_S = 0.05  # padding or trimming by encoders
PIECES = 3  # pieces of each file whose embeddings are compared
PIECE_S = 6.0
EXCERPT_S = 20.0  # speech for language detection
PITCH_S = 30.0  # speech of each file for the pitch
OPENING_S = 30.0
LEAST_SPEECH = 3 * VAD_SAMPLE_RATE  # samples on a channel that has a speaker
LEAK_DB = 20.0  # a channel that is quieter than the other by more only repeats it
SAME_WORDS = 0.7  # correlation of two channels that hold the same speech
HEARD_S = 1.0  # speech whose treble can be measured
CUT_HZ = 24_000  # sample rate of recordings that are cut
SEVERAL_SPEAKERS = "files: {!r} seems to hold more than one speaker; all files must be of one"


@dataclass(frozen=True, slots=True)
class SampleFile:
    """An uploaded file. `name` is for messages only."""

    name: str
    path: Path  # file in a temporary directory
    is_kept: bool = False  # a recording of an existing voice, which passed the checks of its time


@dataclass(frozen=True, slots=True)
class Sample:
    file: SampleFile
    media_type: str
    duration_s: float
    speech_share: float
    snr_db: float
    level_dbfs: float  # level of the speech
    clipped_share: float


@dataclass(frozen=True, slots=True)
class CheckedSamples:
    samples: tuple[Sample, ...]  # samples in the order of the form
    pitch_hz: float | None  # the speaker's
    excerpt: Pcm  # float32 [n] at 16 kHz: some of the speech
    openings: tuple[Pcm, ...]  # float32 [n] at 16 kHz: the beginning of each file
    # float32 [k, 256], one embedding for each file, or for each piece of a single file: a mean
    # would hide a second speaker
    speakers: Embeddings


@dataclass(frozen=True, slots=True)
class _Analysed:
    sample: Sample
    speech: Pcm  # an excerpt, for the speaker embedding and the pitch
    opening: Pcm


@dataclass(eq=False, repr=False)
class SampleChecker:
    """Checks files one after the other; blocking work runs in threads."""

    _decoder: AudioDecoder
    vad: VADEngine
    encoder: Callable[[], SpeakerEncoder]  # called in a thread; the first call may load the engine
    rules: SampleRules

    async def check(self, files: Sequence[SampleFile], owner: Owner = "") -> CheckedSamples:
        """Check the files of a voice; owners take turns (`AudioDecoder.decode`). Raises
        InvalidRequest, InvalidAudio, AudioTooLong, FileTooLarge or Overloaded."""
        formats = await asyncio.to_thread(_formats, files)
        checked = []
        for file, media_type in zip(files, formats, strict=True):
            checked.append(await self._analyse(file, media_type, owner))
        self._check_total(sum(sample.sample.duration_s for sample in checked))
        return await asyncio.to_thread(self._compare, checked)

    async def convert(self, files: Sequence[SampleFile], owner: Owner = "") -> list[SampleFile]:
        """Convert to WAV the recordings in formats that are not stored. Raises as `check`."""
        converted = []
        for file in files:
            if await asyncio.to_thread(_media_type, file.path) is None:
                audio = await self._decode(file, self.rules.max_seconds, owner, CUT_HZ)
                await self._check_channels(file, audio, owner)
                converted += await asyncio.to_thread(_cut, file, audio.pcm, 1)
            else:
                converted.append(file)
        return converted

    async def cut(self, files: Sequence[SampleFile], owner: Owner = "") -> list[SampleFile]:
        """Cut recordings into files of equal length, beside them, as many as a voice needs and none
        longer than allowed. A recording that needs no cut stays as it is, unless it is in a format
        that is not stored. Raises as `check`."""
        rules = self.rules
        longest_s = rules.max_files * rules.max_seconds
        too_much = (
            f"files: more than {longest_s:g} seconds, or than {rules.max_files} files of at most "
            f"{rules.max_seconds:g} seconds each"
        )
        least = -(-rules.min_files // len(files))
        total_s = 0.0
        pieces: list[SampleFile] = []
        for file in files:
            left_s = max(longest_s - total_s, 0.0)
            try:
                audio = await self._decode(file, left_s, owner, CUT_HZ)
            except AudioTooLong:
                raise InvalidRequest(too_much) from None
            total_s += audio.duration_s
            count = max(least, math.ceil((audio.duration_s - LENGTH_SLACK_S) / rules.max_seconds))
            if len(pieces) + count > rules.max_files:
                raise InvalidRequest(too_much)
            if count == 1 and (await asyncio.to_thread(_media_type, file.path)) is not None:
                pieces.append(file)
            else:
                await self._check_channels(file, audio, owner)
                pieces += await asyncio.to_thread(_cut, file, audio.pcm, count)
        self._check_total(total_s)
        return pieces

    def _check_total(self, total_s: float) -> None:
        if total_s < self.rules.min_total_seconds - LENGTH_SLACK_S:
            raise InvalidRequest(
                f"files: {total_s:.1f} seconds in all; at least "
                f"{self.rules.min_total_seconds:g} are needed"
            )

    async def check_speaker(
        self, pcm: Pcm, checked: CheckedSamples, place: int, min_similarity: float
    ) -> None:
        """Compares the speaker of `pcm`, from the file at `place`, with that of the other files, or
        of the rest of an only file, since `check` may pass a file that another speaker begins.
        Raises InvalidRequest."""
        others = np.delete(checked.speakers, place, axis=0)
        others = mean_embedding(others if len(others) else checked.speakers)
        embedding = await asyncio.to_thread(lambda: self.encoder().embed(pcm))
        if float(embedding @ others) < min_similarity:
            name = checked.samples[place].file.name
            raise InvalidRequest(
                f"files: the first speaker of {name!r} is not the speaker of the other files"
            )

    async def _analyse(self, file: SampleFile, media_type: str, owner: Owner) -> _Analysed:
        # A method of its own, so that the audio is freed before the next file is decoded.
        audio = await self._decode(file, self.rules.max_seconds, owner, VAD_SAMPLE_RATE)
        if not file.is_kept:
            await self._check_channels(file, audio, owner)
        if audio.duration_s < self.rules.min_seconds - LENGTH_SLACK_S:
            raise InvalidAudio(self._wrong_length(file, audio.duration_s))
        return await asyncio.to_thread(self._measure, file, media_type, audio)

    async def _decode(
        self, file: SampleFile, longest_s: float, owner: Owner, sample_rate: int
    ) -> DecodedAudio:
        try:
            return await self._decoder.decode(
                file.path, owner=owner, sample_rate=sample_rate, max_duration_s=longest_s
            )
        except AudioTooLong:
            raise AudioTooLong(self._wrong_length(file)) from None
        except (InvalidAudio, FileTooLarge) as error:
            raise type(error)(f"files: {file.name!r}: {error}") from None

    async def _check_channels(self, file: SampleFile, audio: DecodedAudio, owner: Owner) -> None:
        """Checks that one person speaks on both channels, since their mean would hide a second one
        who speaks at the same time. Raises InvalidAudio."""
        if audio.channels != 2:
            return
        channels: list[Pcm] = []
        for channel in (0, 1):
            decoded = await self._decoder.decode(
                file.path, owner=owner, max_duration_s=audio.duration_s + 1, channel=channel
            )
            channels.append(_excerpt(decoded.pcm, 2 * PITCH_S))
        if await asyncio.to_thread(self._have_two_speakers, channels):
            raise InvalidAudio(
                f"files: {file.name!r}: each channel has another speaker; send one channel alone"
            )

    def _have_two_speakers(self, channels: Sequence[Pcm]) -> bool:
        speeches = [_excerpt(self._find_speech(pcm)[-1], PITCH_S) for pcm in channels]
        levels = [level_dbfs(speech) for speech in speeches if len(speech) >= LEAST_SPEECH]
        if len(levels) < 2 or abs(levels[0] - levels[1]) > LEAK_DB:
            return False
        # Two microphones make one voice as unlike as two voices (0.62 beside 0.65).
        left, right = channels
        if envelope_correlation(left, right) >= SAME_WORDS:
            return False
        first, second = map(self.encoder().embed, speeches)
        return float(first @ second) < self.rules.min_similarity

    def _wrong_length(self, file: SampleFile, seconds: float | None = None) -> str:
        actual = "too long" if seconds is None else f"{seconds:.1f} seconds long"
        rules = self.rules
        return (
            f"files: {file.name!r} is {actual}; each file must last {rules.min_seconds:g} to "
            f"{rules.max_seconds:g} seconds"
        )

    def _measure(self, file: SampleFile, media_type: str, audio: DecodedAudio) -> _Analysed:
        """Measure a file; blocking, about 0.3 s for a minute of audio."""
        pcm = audio.pcm
        rules, name = self.rules, file.name
        probabilities, is_speech, speech = self._find_speech(pcm)
        share = len(speech) / len(pcm)
        least_treble = None if file.is_kept else rules.min_treble_db
        has_speech = len(speech) >= HEARD_S * VAD_SAMPLE_RATE
        # First, since the detector also finds less speech in the band of telephones.
        if least_treble is not None and has_speech and treble_db(speech) < least_treble:
            raise InvalidAudio(
                f"files: {name!r} is of telephone quality: it has no sound above {TELEPHONE_HZ} Hz,"
                " and a voice made from it would be muffled. Converting it does not help: record "
                "the speaker again with a microphone, at 16 kHz and 24 kbit/s or more"
            )
        if share < rules.min_speech_share:
            percent, least = beside(100 * share, 100 * rules.min_speech_share)
            raise InvalidAudio(
                f"files: {name!r} holds too little speech: {percent}%, and at least {least}% of "
                "its length is needed"
            )
        level = level_dbfs(speech)
        if level < rules.min_level_dbfs:
            loudness, least = beside(level, rules.min_level_dbfs)
            raise InvalidAudio(
                f"files: {name!r} is too quiet: its speech is at {loudness} dBFS, and at least "
                f"{least} are needed; record it nearer to the microphone"
            )
        clipped = clipped_share(pcm)
        if clipped > rules.max_clipped_share:
            raise InvalidAudio(
                f"files: {name!r} is clipped: {clipped:.1%} of it lies at its ceiling; record it "
                "at a lower level"
            )
        snr = snr_db(pcm, probabilities, is_speech, self.vad.capabilities.frame_samples)
        if snr < rules.min_snr_db:
            ratio, least = beside(snr, rules.min_snr_db)
            raise InvalidAudio(
                f"files: {name!r} is too noisy: its speech is {ratio} dB above the noise, and "
                f"{least} are needed"
            )
        sample = Sample(file, media_type, audio.duration_s, share, snr, level, clipped)
        opening = pcm[: int(OPENING_S * VAD_SAMPLE_RATE)].copy()  # a copy frees the whole signal
        return _Analysed(sample, _excerpt(speech, PITCH_S), opening)

    def _find_speech(self, pcm: Pcm) -> tuple[Pcm, NDArray[np.bool_], Pcm]:
        """Returns each frame's probability of speech, whether that is enough, and the speech."""
        probabilities = self.vad.probabilities(levelled(pcm)[0])
        is_speech = probabilities >= self.rules.speech_threshold
        speech = speech_only(pcm, is_speech, self.vad.capabilities.frame_samples)
        return probabilities, is_speech, speech

    def _compare(self, checked: Sequence[_Analysed]) -> CheckedSamples:
        """Checks that one person speaks in all files; blocking, about a second."""
        encoder = self.encoder()
        pieces = [encoder.embed_pieces(part.speech, _windows(part.speech)) for part in checked]
        names = [sample.sample.file.name for sample in checked]
        check_speakers(names, pieces, self.rules)
        for part in checked:
            if not part.sample.file.is_kept and has_several_speakers(part.speech, encoder):
                raise InvalidAudio(SEVERAL_SPEAKERS.format(part.sample.file.name))
        speech = np.concatenate([sample.speech for sample in checked])
        return CheckedSamples(
            samples=tuple(sample.sample for sample in checked),
            pitch_hz=pitch_hz(speech),
            excerpt=max((sample.speech for sample in checked), key=len)[
                : int(EXCERPT_S * VAD_SAMPLE_RATE)
            ],
            openings=tuple(sample.opening for sample in checked),
            speakers=np.stack([mean_embedding(of_file) for of_file in pieces])
            if len(pieces) > 1
            else pieces[0],
        )


def _cut(file: SampleFile, pcm: Pcm, count: int) -> list[SampleFile]:
    """Write a recording of CUT_HZ as `count` WAV files of equal length; blocking."""
    pieces: list[SampleFile] = []
    for number, part in enumerate(np.array_split(pcm, count), start=1):
        path = file.path.with_name(f"{file.path.name}-{number}")
        path.write_bytes(as_wav(float_to_pcm16(part), "linear", CUT_HZ))
        name = f"{file.name}, part {number}" if count > 1 else file.name
        pieces.append(SampleFile(name, path))
    return pieces


def check_speakers(names: Sequence[str], pieces: Sequence[Embeddings], rules: SampleRules) -> None:
    """Compares all files with the one that is most similar to the others. `pieces` has the
    embeddings of each file's pieces. Raises InvalidRequest or InvalidAudio."""
    files = np.stack([mean_embedding(of_file) for of_file in pieces])
    typical = int((files @ files.T).sum(axis=1).argmax())
    likeness = files @ files[typical]
    odd = int(likeness.argmin())
    if likeness[odd] < rules.min_similarity:
        raise InvalidRequest(
            f"files: {names[odd]!r} does not sound like the speaker of {names[typical]!r}; all "
            "files must be of one speaker"
        )
    for name, of_file in zip(names, pieces, strict=True):
        if float((of_file @ files[typical]).min()) < rules.min_piece_similarity:
            raise InvalidAudio(SEVERAL_SPEAKERS.format(name))


def _formats(files: Sequence[SampleFile]) -> list[str]:
    """Return media types by content, "" if not stored. Blocking. Raises InvalidRequest."""
    seen: dict[bytes, str] = {}
    formats = []
    for file in files:
        with file.path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").digest()
        if digest in seen:
            raise InvalidRequest(f"files: {file.name!r} is the same as {seen[digest]!r}")
        seen[digest] = file.name
        formats.append(_media_type(file.path) or "")
    return formats


def _media_type(path: Path) -> str | None:
    """Return the media type of a file that may be stored, by its content; blocking."""
    try:
        return MEDIA_TYPES.get(sniff(head_of(path)))
    except PipelineError:
        return None


def _windows(speech: Pcm) -> list[tuple[int, int]]:
    """Chooses up to PIECES of PIECE_S, spread over the speech, without overlap if possible."""
    size = int(PIECE_S * VAD_SAMPLE_RATE)
    if len(speech) <= size:
        return [(0, len(speech))]
    count = min(PIECES, len(speech) // size)
    starts = np.linspace(0, len(speech) - size, count).astype(int)
    return [(int(start), int(start) + size) for start in starts]


def _excerpt(speech: Pcm, seconds: float) -> Pcm:
    """Joins `seconds` of the beginning, middle and end of the speech, or takes all of it."""
    limit = int(seconds * VAD_SAMPLE_RATE)
    if len(speech) <= limit:
        return speech
    part = limit // PIECES
    starts = np.linspace(0, len(speech) - part, PIECES).astype(int)
    return np.concatenate([speech[start : start + part] for start in starts])
