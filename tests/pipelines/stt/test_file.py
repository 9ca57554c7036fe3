"""Transcription of files by the scripted engine."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from configs.environment import MODEL_NICENESS
from configs.schema.transcription import DecodingProfile, load_profiles
from models.base import ModelInfo
from models.errors import EngineLost
from models.registry import STT, VAD, load_model
from models.stt.base import FILE, FINAL, Segment, Transcript, TranscriptionRequest
from models.stt.options import RecognitionOptions, TranscriptStyle
from models.vad.base import Probabilities
from models.weights.store import WeightStore
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.errors import InvalidRequest
from pipelines.stt.file import (
    IN_FLIGHT,
    FileTranscript,
    HeardText,
    TranscriptionPipeline,
    band_passed,
)
from tests.engines import SCRIPTED
from tests.hostile.audio_files import tone, wav
from tests.kept_decoder import KeptDecoder
from tests.local_ports import LocalSTTModel
from tests.models.configured import configured, described
from tests.models.sounds import speak, wordless
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import LoudnessVAD
from tests.pipelines.voices.recordings import TEXTS


class RecordingTranscriber:
    """Answers `languages` in turn and records the requests."""

    def __init__(self, info: ModelInfo, languages: tuple[str, ...] = ("de",)) -> None:
        self.info = info
        self.languages = languages
        self.requests: list[TranscriptionRequest] = []
        self.in_flight = self.most_in_flight = 0
        self.error: Exception | None = None

    async def describe(self) -> ModelInfo:
        return self.info

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        number = len(self.requests)
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.01)
        self.in_flight -= 1
        if self.error is not None:
            raise self.error
        language = request.language or self.languages[min(number, len(self.languages) - 1)]
        if not language.strip("-"):
            return Transcript("fr", 0.2)
        segment = Segment(f"text {number}", 0.0, 1.0, -0.5, 0.0)
        scores = {} if request.language else {language: 0.9}
        return Transcript(language, 0.9, (segment,), scores=scores)


@pytest.fixture
def decoder() -> AudioDecoder:
    return KeptDecoder()


@pytest.fixture
def transcriber(weights: WeightStore) -> RecordingTranscriber:
    return RecordingTranscriber(load_model(STT, SCRIPTED, weights)[1])


@pytest.fixture
def pipeline(decoder: AudioDecoder, transcriber: RecordingTranscriber) -> TranscriptionPipeline:
    return TranscriptionPipeline(transcriber, decoder, LoudnessVAD(), load_profiles())


class PriorityVAD(LoudnessVAD):
    """Notes the niceness of the thread in which it works."""

    def __init__(self) -> None:
        self.seen = set[int]()

    def batches(self, pcm: np.ndarray) -> Iterator[Probabilities]:
        self.seen.add(os.getpriority(os.PRIO_PROCESS, 0))
        return super().batches(pcm)


async def test_files_are_prepared_at_a_lower_priority_than_requests_are_answered(
    decoder: AudioDecoder, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    vad = PriorityVAD()
    pipeline = TranscriptionPipeline(transcriber, decoder, vad, load_profiles())
    await transcribe(pipeline, write(tmp_path / "0", tone(1)), RecognitionOptions())
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert vad.seen == {min(own + MODEL_NICENESS, 19)}


def write(path: Path, *pieces: np.ndarray) -> Path:
    pcm = np.concatenate(pieces)
    path.write_bytes(wav((pcm * 32767).astype("<i2").tobytes()))
    return path


async def transcribe(
    pipeline: TranscriptionPipeline, path: Path, request: RecognitionOptions
) -> FileTranscript:
    return await pipeline.transcribe(await pipeline.open(path, request))


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(16_000 * seconds), np.float32)


async def test_a_language_is_graded_by_the_character_errors_of_the_model(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber
) -> None:
    errors = (("de", 20.0), ("es", 20.1), ("hi", 50.0), ("pl", 50.1))
    transcriber.info = replace(transcriber.info, character_errors=errors)
    grades = {one.names.code: one.grade for one in await pipeline.languages()}
    expected = {"de": "good", "es": "fair", "hi": "fair", "pl": "weak"}
    assert grades == {code: expected.get(code) for code in transcriber.info.languages}


async def test_silence_gives_an_empty_transcript(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    result = await transcribe(pipeline, write(tmp_path / "0", silence(3)), RecognitionOptions())
    assert (result.text, result.confidence, result.duration_s) == ("", 0.0, 3.0)
    assert transcriber.requests == []


async def test_speech_segments_are_joined_with_their_time_offsets(
    decoder: AudioDecoder, weights: WeightStore, tmp_path: Path
) -> None:
    local = LocalSTTModel(*load_model(STT, SCRIPTED, weights))
    pipeline = TranscriptionPipeline(local, decoder, LoudnessVAD(), load_profiles())
    path = write(tmp_path / "0", silence(2), tone(1), silence(4), tone(1), silence(1))
    result = await transcribe(pipeline, path, RecognitionOptions(words=True))
    assert result.text == "the quick brown fox the quick brown fox"
    times = [time for word in result.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert 1.5 < times[0] < 2.1
    assert 6.5 < result.words[4].start < 7.1
    assert result.confidence == pytest.approx(np.exp(-0.1))


async def test_the_longest_of_the_first_segments_shows_the_language_of_a_file(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    transcriber.languages = ("es", "es", "-", "it")
    pieces = [silence(1)]
    for seconds in (1, 4, 1, 1):
        pieces += [tone(seconds), silence(3)]
    result = await transcribe(pipeline, write(tmp_path / "0", *pieces), RecognitionOptions())
    lengths = [len(request.pcm) / 16_000 for request in transcriber.requests]
    assert lengths == pytest.approx([4.5, 1.5, 1.5, 1.5], abs=0.1)
    assert [request.language for request in transcriber.requests] == [None] * 4
    assert [request.expected for request in transcriber.requests] == [None, "es", "es", "es"]
    assert result.text == "text 1 text 0 text 3" and result.language == "es"


async def test_each_segment_of_a_file_is_written_in_its_own_language(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    transcriber.languages = ("zh", "zh", "en")
    pieces = [tone(5), silence(3), tone(4), silence(3), tone(4), silence(3)]
    recording = await pipeline.open(write(tmp_path / "0", *pieces), RecognitionOptions())
    *parts, whole = [item async for item in pipeline.stream(recording)]
    assert isinstance(whole, FileTranscript)
    assert whole.text == "text 0text 1 text 2" and whole.language == "zh"
    assert "".join(part.text for part in parts if isinstance(part, HeardText)) == whole.text


class OtherLanguageTranscriber(RecordingTranscriber):
    """Finds English, whatever language is given."""

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        return replace(await super().transcribe(request), language="en")


async def test_speech_in_another_language_than_the_given_one_has_a_warning(
    decoder: AudioDecoder, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    other = OtherLanguageTranscriber(transcriber.info)
    pipeline = TranscriptionPipeline(other, decoder, LoudnessVAD(), load_profiles())
    path = write(tmp_path / "0", tone(1))
    wrong = await transcribe(pipeline, path, RecognitionOptions("es"))
    right = await transcribe(pipeline, path, RecognitionOptions("en"))
    detected = await transcribe(pipeline, path, RecognitionOptions())
    assert [file.language for file in (wrong, right, detected)] == ["en"] * 3
    assert "'es'" in "".join(wrong.warnings)
    assert not right.warnings and not detected.warnings


class FaintVAD(LoudnessVAD):
    """Takes sound for speech with a low probability."""

    highest = 0.7

    def batches(self, pcm: np.ndarray) -> Iterator[Probabilities]:
        for batch in super().batches(pcm):
            yield np.minimum(batch, self.highest)


@pytest.mark.parametrize(("highest", "text"), [(0.7, ""), (0.8, "text 0")])
async def test_an_unlikely_text_of_unlikely_speech_is_dropped(
    decoder: AudioDecoder,
    transcriber: RecordingTranscriber,
    tmp_path: Path,
    highest: float,
    text: str,
) -> None:
    vad = FaintVAD()
    vad.highest = highest
    pipeline = TranscriptionPipeline(transcriber, decoder, vad, load_profiles())
    result = await transcribe(pipeline, write(tmp_path / "0", tone(1)), RecognitionOptions("en"))
    assert (result.text, len(transcriber.requests)) == (text, 1)


async def test_a_long_file_has_a_limited_number_of_calls_in_flight(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    path = write(tmp_path / "0", tone(200))
    await transcribe(pipeline, path, RecognitionOptions(language="en"))
    assert len(transcriber.requests) > 5
    assert transcriber.most_in_flight == IN_FLIGHT


async def test_the_engine_gets_all_options_of_the_caller(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    options = RecognitionOptions(
        language="en",
        words=True,
        keyterms=("Antiphon",),
        no_speech_threshold=0.4,
        form=TranscriptStyle(numerals=True),
    )
    await transcribe(pipeline, write(tmp_path / "0", tone(1)), options)
    assert [request.options for request in transcriber.requests] == [options]


async def test_the_speech_of_a_file_is_urgent_only_when_it_is_short(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    """The first utterances of long files, of 30 s each, kept live speech waiting for seconds."""
    pieces = [silence(1), tone(1), silence(3)]
    await transcribe(pipeline, write(tmp_path / "0", *pieces), RecognitionOptions())
    await transcribe(pipeline, write(tmp_path / "1", *pieces * 2), RecognitionOptions())
    assert [one.urgency for one in transcriber.requests] == [FINAL, FILE, FILE]
    assert not any(one.is_live for one in transcriber.requests)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 40.0])
def test_the_band_pass_filter_by_blocks_is_that_of_the_whole_signal(seconds: float) -> None:
    pcm = np.random.default_rng(0).normal(0, 0.1, int(seconds * 16_000)).astype(np.float32)
    sos = butter(4, (300.0, 3400.0), "bandpass", fs=16_000, output="sos")
    whole = sosfiltfilt(sos, pcm)
    inner = slice(1600, -1600)  # near its ends, a filter depends on how the signal is continued
    found = band_passed(pcm, (300.0, 3400.0))
    assert np.abs(found - whole)[inner].max() < 1e-4
    assert np.abs(found - whole).max() < 0.2


async def test_a_profile_sets_the_beam_size_and_the_initial_prompt(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    path = write(tmp_path / "0", tone(1))
    await transcribe(pipeline, path, RecognitionOptions(language="en", profile="meeting"))
    await transcribe(pipeline, path, RecognitionOptions(language="en", profile="medical"))
    await transcribe(pipeline, path, RecognitionOptions(language="de", profile="medical"))
    meeting, english, german = transcriber.requests
    assert meeting.beam_size > 1
    assert "tachycardia" in english.options.prompt
    assert not german.options.prompt


async def test_the_phone_call_profile_filters_audio_to_the_telephone_band(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    path = write(tmp_path / "0", tone(1, hz=60) * 0.5 + tone(1, hz=1000) * 0.5)
    await transcribe(pipeline, path, RecognitionOptions(language="en", profile="phone_call"))
    spectrum = np.abs(np.fft.rfft(transcriber.requests[0].pcm[2000:14_000]))
    assert spectrum[45] < 0.02 * spectrum[750]


async def test_a_region_is_dropped_from_the_language_and_an_unknown_one_refused(
    pipeline: TranscriptionPipeline, tmp_path: Path
) -> None:
    path = write(tmp_path / "0", tone(1))
    assert (await transcribe(pipeline, path, RecognitionOptions(language="en-US"))).language == "en"
    with pytest.raises(InvalidRequest):
        await transcribe(pipeline, path, RecognitionOptions(language="xx"))


async def test_an_error_of_the_engine_reaches_the_caller(
    pipeline: TranscriptionPipeline, transcriber: RecordingTranscriber, tmp_path: Path
) -> None:
    transcriber.error = EngineLost("gone")
    with pytest.raises(EngineLost):
        await transcribe(
            pipeline, write(tmp_path / "0", tone(90)), RecognitionOptions(language="en")
        )


async def test_recordings_of_one_tenant_do_not_delay_that_of_another(
    decoder: AudioDecoder,
    transcriber: RecordingTranscriber,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    class SlowForMinutes(LoudnessVAD):
        def batches(self, pcm: np.ndarray) -> Iterator[Probabilities]:
            if len(pcm) > 16_000 * 2:
                assert release.wait(PATIENCE_S)
            yield from super().batches(pcm)

    monkeypatch.setattr("pipelines.stt.file.cores", lambda: 2)
    pipeline = TranscriptionPipeline(transcriber, decoder, SlowForMinutes(), load_profiles())
    short, long = write(tmp_path / "0", tone(1)), write(tmp_path / "1", tone(3))
    for owner in (1, 2):  # for a minute from now on, none of them takes the last free thread
        await pipeline.transcribe(await pipeline.open(short, RecognitionOptions(), owner))
    opened = [await pipeline.open(long, RecognitionOptions(), 1) for _ in range(20)]
    greedy = [asyncio.create_task(pipeline.transcribe(one)) for one in opened]
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await pipeline.transcribe(await pipeline.open(short, RecognitionOptions(), 2))
    assert not any(task.done() for task in greedy)
    release.set()
    await asyncio.gather(*greedy)
    assert {one.owner for one in transcriber.requests} == {"1", "2"}


def test_every_profile_of_the_interface_is_configured(pipeline: TranscriptionPipeline) -> None:
    assert set(load_profiles()) == {"general", "phone_call", "meeting", "medical"}
    assert load_profiles()["general"] == DecodingProfile()
    assert tuple(pipeline.profiles) == ("general", "phone_call", "meeting", "medical")


@pytest.mark.slow
@pytest.mark.weights
async def test_real_speech_between_noises_is_transcribed_without_hallucinations(
    decoder: AudioDecoder, weights: WeightStore, tmp_path: Path
) -> None:
    local, vad = LocalSTTModel(*described(STT, "whisper_base")), configured(VAD, "silero")
    pipeline = TranscriptionPipeline(local, decoder, vad, load_profiles())
    for name, sound in wordless(5).items():
        for profile in load_profiles():
            path = write(tmp_path / "0", sound)
            result = await transcribe(pipeline, path, RecognitionOptions(profile=profile))
            assert result.text == "", (name, profile)
    speech = speak("The quick brown fox jumps over the lazy dog.", weights)
    path = write(tmp_path / "0", wordless(5)["hum"], speech, wordless(5)["pink noise"] * 0.1)
    result = await transcribe(pipeline, path, RecognitionOptions(words=True))
    assert "quick brown fox jumps over the lazy dog" in result.text.lower()
    assert result.language == "en"
    assert result.words[0].start == pytest.approx(5.2, abs=0.5)
    assert 0.5 < result.confidence <= 1


@pytest.mark.weights
@pytest.mark.parametrize("pause_s", [0.5, 1.0, 1.4])
async def test_a_word_after_a_pause_begins_with_its_sound(
    decoder: AudioDecoder, weights: WeightStore, tmp_path: Path, pause_s: float
) -> None:
    local, vad = LocalSTTModel(*described(STT, "whisper_base")), configured(VAD, "silero")
    pipeline = TranscriptionPipeline(local, decoder, vad, load_profiles())
    sentences = [speak(text, weights) for text in TEXTS[:4]]
    loud = [np.flatnonzero(np.abs(pcm) > 0.02) for pcm in sentences]
    parts = [pcm[at[0] : at[-1]] for pcm, at in zip(sentences, loud, strict=True)]
    path = write(tmp_path / "0", *(piece for part in parts for piece in (part, silence(pause_s))))
    words = (await transcribe(pipeline, path, RecognitionOptions("en", words=True))).words
    start_s = 0.0
    for part in parts:
        end_s = start_s + len(part) / 16_000
        first = next(word for word in words if word.end > start_s + 0.1)
        last = [word for word in words if word.start < end_s - 0.1][-1]
        assert first.start == pytest.approx(start_s, abs=0.3)
        assert last.end == pytest.approx(end_s, abs=0.3)
        start_s = end_s + pause_s
