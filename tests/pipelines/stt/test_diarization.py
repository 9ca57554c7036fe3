"""Diarization: clusters of voices, words at their borders, and synthesised voices."""

import asyncio
import math
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import cast

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig, load_profiles
from configs.schema.voices import CustomVoicesConfig
from models.audio import Pcm, resample
from models.registry import SPEAKER, STT, VAD
from models.speaker.base import EMBEDDING_SIZE, Embeddings, SpeakerEncoder
from models.stt.base import STT_SAMPLE_RATE, Segment, Word
from models.stt.options import RecognitionOptions
from models.tts.base import SynthesisRequest
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.segments import SpeechSegment, spans_of
from pipelines.errors import InvalidAudio
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.diarization import (
    HOP_S,
    MIN_SPEAKER_S,
    MIN_WINDOW_S,
    WINDOW_S,
    SpeakerLabels,
    SpeakerUtterance,
    SpeakerVoice,
    WindowEmbeddings,
    cluster_speakers,
    has_several_speakers,
    joined,
    speaker_letters,
    voice_windows,
)
from pipelines.stt.events import LiveEvent, LiveTranscript
from pipelines.stt.file import DecodedRecording, TranscriptionPipeline
from pipelines.stt.live_speakers import SpeakerOptions
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from pipelines.voices import speakers
from pipelines.voices.checks import SampleChecker
from tests.local_ports import LocalSTTModel
from tests.models.configured import configured, described
from tests.models.tts.loaded import loaded, speech

FRAME = 512
RULES = load_yaml(CustomVoicesConfig, "custom_voices").speakers
WORD_S = 0.3
NO_VOICES = np.zeros((0, 2)), np.zeros((0, EMBEDDING_SIZE), np.float32)

Turns = Sequence[tuple[int, float, float]]  # speaker, from, to
Spoken = tuple[list[Segment], WindowEmbeddings]


def conversation(
    turns: Turns, noise: float = 0.04, seed: int = 0
) -> tuple[Segment, WindowEmbeddings]:
    """Words and windows of turns; the voices are random points with noise around them."""
    draw = np.random.default_rng(seed)
    centres = np.abs(draw.standard_normal((4, EMBEDDING_SIZE))) ** 3
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    words: list[Word] = []
    windows: list[tuple[float, float]] = []
    embeddings = []
    for speaker, start, end in turns:
        times = np.arange(start, end - WORD_S / 2, WORD_S).tolist()
        words += [Word(f"{speaker}", t, min(t + WORD_S, end), 0.9) for t in times]
        size = min(WINDOW_S, end - start)
        for at in np.arange(start, end - size + 0.01, HOP_S).tolist():
            windows.append((at, at + size))
            embeddings.append(centres[speaker] + noise * draw.standard_normal(EMBEDDING_SIZE))
    points = np.array(embeddings)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    segment = Segment("", words[0].start, words[-1].end, -0.1, 0.0, tuple(words))
    return segment, WindowEmbeddings(np.array(windows), points.astype(np.float32))


def clustered(
    segments: Sequence[Segment], voices: WindowEmbeddings, known: Sequence[SpeakerVoice] = ()
) -> tuple[SpeakerUtterance, ...]:
    return cluster_speakers(segments, voices, " ", SpeakerLabels(known))


def said(utterances: Sequence[SpeakerUtterance]) -> list[tuple[str, str]]:
    """Each speaker with the true speakers of the words given to it."""
    return [(one.speaker, "".join(sorted(set(one.text.split())))) for one in utterances]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([(2, 0, 30)], [("A", "2")]),
        ([(2, 0, 6), (0, 6.5, 12)], [("A", "2"), ("B", "0")]),
        ([(0, 0, 5), (1, 5, 9), (0, 9, 14)], [("A", "0"), ("B", "1"), ("A", "0")]),  # no pauses
        (
            [(0, 0, 5), (1, 5.4, 9), (2, 9.8, 15), (1, 15.3, 19)],
            [("A", "0"), ("B", "1"), ("C", "2"), ("B", "1")],
        ),
    ],
)
def test_speakers_are_counted_and_named_in_order_of_appearance(
    turns: Turns, expected: list[tuple[str, str]]
) -> None:
    segment, voices = conversation(turns)
    assert said(clustered([segment], voices)) == expected


def test_an_utterance_has_the_words_text_and_times_of_its_speaker() -> None:
    segment, voices = conversation([(0, 0, 6), (1, 6.5, 12)])
    first, second = clustered([segment], voices)
    times = [first.start, first.end, second.start, second.end]
    assert times == pytest.approx([0, 6, 6.5, 12], abs=WORD_S)
    assert first.words + second.words == segment.words
    assert first.text == " ".join(word.word for word in first.words)


def test_a_single_outlier_window_makes_no_new_speaker() -> None:
    segment, voices = conversation([(0, 0, 8), (1, 8.2, 9.2), (0, 9.4, 16)])
    assert {one.speaker for one in clustered([segment], voices)} == {"A"}


def test_a_short_turn_in_small_groups_of_windows_is_a_speaker() -> None:
    """Of 100 conversations of two people in three turns eight were told as of one."""
    draw = np.random.default_rng(0)
    first, second, odd = (np.eye(EMBEDDING_SIZE)[at] for at in range(3))
    similar = [second + 0.4 * odd, second - 0.4 * odd]  # 0.72 alike, less with noise
    turns = [(first, 0, 8), (similar[0], 8.3, 9.8), (similar[1], 10.1, 11.6), (first, 12, 18)]
    windows, embeddings = [], []
    for centre, start, end in turns:
        size = min(WINDOW_S, end - start)
        for at in np.arange(start, end - size + 0.01, HOP_S).tolist():
            windows.append((at, at + size))
            point = centre + 0.02 * draw.standard_normal(EMBEDDING_SIZE)
            embeddings.append(point / np.linalg.norm(point))
    voices = WindowEmbeddings(np.array(windows), np.array(embeddings, np.float32))
    found = joined((), voices, MIN_SPEAKER_S)
    assert [round(one.seconds) for one in found] == [14, 3]
    alone = [at for at, (start, _) in enumerate(windows) if not 9 < start < 12]
    few = WindowEmbeddings(voices.windows[alone], voices.embeddings[alone])
    assert len(joined((), few, MIN_SPEAKER_S)) == 1, "too little to tell"


def test_without_speaker_embeddings_all_words_have_one_speaker() -> None:
    segment, _ = conversation([(0, 0, 3)])
    no_voices = WindowEmbeddings(*NO_VOICES)
    assert said(clustered([segment], no_voices)) == [("A", "0")]
    assert clustered([], no_voices) == ()


def test_a_segment_without_word_times_stays_one_utterance() -> None:
    segment, voices = conversation([(0, 0, 6), (1, 6.5, 12)])
    whole = [Segment("one", 0, 6, -0.1, 0), Segment("two", 6.5, 12, -0.1, 0)]
    assert [one.text for one in clustered(whole, voices)] == ["one", "two"]


def test_words_outside_of_all_windows_get_the_speaker_of_the_nearest() -> None:
    segment, voices = conversation([(0, 0, 6), (1, 8, 14)])
    late = Segment("late", 20, 21, -0.1, 0, (Word("late", 20, 21, 0.9),))
    assert [one.speaker for one in clustered([segment, late], voices)] == ["A", "B"]


def test_speaker_names_continue_with_two_letters_after_z() -> None:
    letters = list(islice(speaker_letters(), 53))
    assert [letters[n] for n in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]


def test_embedding_windows_lie_within_speech_and_reach_its_ends() -> None:
    speech_s = [(1.0, 1.2), (2.0, 3.0), (4.0, 9.0)]
    times = np.arange(0, 10, FRAME / STT_SAMPLE_RATE)
    probabilities = np.zeros(len(times), np.float32)
    for start, end in speech_s:
        probabilities[(times >= start) & (times < end)] = 1
    segment = SpeechSegment(FRAME * 16, STT_SAMPLE_RATE * 10)  # from 0.512 s on
    windows = [
        tuple(0.512 + sample / STT_SAMPLE_RATE for sample in window)
        for window in voice_windows(spans_of(probabilities, FRAME, segment))
    ]
    ends = [*windows[0], windows[1][0], windows[-1][1]]
    assert ends == pytest.approx([2.0, 3.0, 4.0, 9.0], abs=0.04)
    assert all(MIN_WINDOW_S <= end - start <= WINDOW_S + 0.01 for start, end in windows)
    steps = np.diff([start for start, _ in windows[1:]])
    assert steps.max() <= HOP_S + 0.01


def part_of(segment: Segment, voices: WindowEmbeddings, start: float, end: float) -> Spoken:
    """The words and windows of a part of a conversation."""
    units = [
        Segment(one.word, one.start, one.end, 0, 0)
        for one in segment.words
        if start <= one.start < end
    ]
    mine = (voices.windows[:, 0] >= start) & (voices.windows[:, 1] <= end + 0.01)
    return units, WindowEmbeddings(voices.windows[mine], voices.embeddings[mine])


def test_the_speakers_of_a_session_keep_the_labels_that_were_told() -> None:
    turns = [(0, 0, 3), (1, 4, 6), (0, 7, 9), (2, 10, 13), (1, 14, 16), (2, 17, 19), (0, 20, 21)]
    segment, voices = conversation(turns)
    session = SpeakerLabels((), 0.8)
    told = [set(session.label(*part_of(segment, voices, start, end))) for _, start, end in turns]
    assert told == [{"A"}, {"B"}, {"A"}, {"C"}, {"B"}, {"C"}, {"A"}]


def test_a_speaker_has_one_label_in_all_parts_of_a_recording() -> None:
    heard: list[SpeakerVoice] = []
    told = []
    for order in ((0, 1), (1, 2, 0), (3, 2)):
        turns = [(speaker, 7.0 * at, 7.0 * at + 6) for at, speaker in enumerate(order)]
        segment, voices = conversation(turns)
        labels = SpeakerLabels(heard=heard)  # as after a restart
        told.append(said(cluster_speakers([segment], voices, " ", labels)))
        heard = labels.heard
    assert told[0] == [("A", "0"), ("B", "1")]
    assert told[1] == [("B", "1"), ("C", "2"), ("A", "0")]
    assert told[2] == [("D", "3"), ("C", "2")]
    seconds = {one.label: round(one.seconds) for one in heard}
    assert seconds == {"A": 12, "B": 12, "C": 12, "D": 6}
    units, no_voices = [Segment("Yes.", 0, 0.3, -0.1, 0)], WindowEmbeddings(*NO_VOICES)
    assert SpeakerLabels(heard=heard).label(units, no_voices) == ["C"]


def test_an_utterance_of_two_speakers_has_both_labels() -> None:
    segment, voices = conversation([(0, 0, 4), (1, 4, 8)])
    units, windows = part_of(segment, voices, 0, 8)
    labels = SpeakerLabels((), 0.8).label(units, windows)
    assert labels == ["A" if unit.text == "0" else "B" for unit in units]


def test_an_utterance_without_windows_has_the_label_of_the_last_one() -> None:
    segment, voices = conversation([(0, 0, 3), (1, 4, 7), (0, 8, 8.3)])
    session, nothing = SpeakerLabels((), 0.8), part_of(segment, voices, 50, 51)[1]
    units = part_of(segment, voices, 8, 9)[0]
    assert session.label(units, nothing) == ["A"]
    first = [session.label(*part_of(segment, voices, *times)) for times in ((0, 3), (4, 7))]
    assert [set(one) for one in first] == [{"A"}, {"B"}]
    assert session.label(units, nothing) == ["B"]
    assert session.label([], nothing) == []


def test_known_speakers_have_their_names_and_others_the_free_letters() -> None:
    segment, voices = conversation([(0, 0, 4), (1, 5, 9), (2, 10, 14)])
    known = [
        SpeakerVoice(
            part_of(segment, voices, start, start + 4)[1].embeddings.sum(axis=0), math.inf, name
        )
        for name, start in (("A", 0), ("Ben", 10))
    ]
    assert said(clustered([segment], voices, known)) == [("A", "0"), ("B", "1"), ("Ben", "2")]
    session = SpeakerLabels(known, 0.8)
    told = [set(session.label(*part_of(segment, voices, start, start + 4))) for start in (10, 5, 0)]
    assert told == [{"Ben"}, {"B"}, {"A"}]


QUESTION = "Good morning, have you seen the letter?"
ANSWER = "No, I was away until this afternoon."


@cache
def kokoro(voice: str, text: str) -> Pcm:
    engine, _ = loaded("kokoro")
    pcm = speech(engine, SynthesisRequest(text=text, voice=voice, language="en"))
    return resample(pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE)


@pytest.mark.weights
async def test_two_synthesised_voices_are_separated_into_speakers() -> None:
    encoder = configured(SPEAKER, "resemblyzer")
    transcriber = LocalSTTModel(*described(STT, "whisper_base"), encoder)
    vad = configured(VAD, "silero")
    man, woman = kokoro("am_adam", QUESTION), kokoro("af_heart", ANSWER)
    pause = np.zeros(STT_SAMPLE_RATE // 2, np.float32)
    pcm = np.concatenate([man, pause, woman, pause, man])
    pipeline = TranscriptionPipeline(transcriber, AudioDecoder(), vad, load_profiles())
    request = RecognitionOptions("en", speakers=True)
    profile = load_profiles()["general"]
    recording = DecodedRecording(pcm, len(pcm) / STT_SAMPLE_RATE, request, profile)
    utterances = (await pipeline.transcribe(recording)).utterances
    assert utterances is not None
    assert [one.speaker for one in utterances] == ["A", "B", "A"]
    assert "letter" in utterances[0].text and "afternoon" in utterances[1].text
    assert utterances[1].start == pytest.approx(len(man) / STT_SAMPLE_RATE + 0.5, abs=0.5)


@pytest.mark.slow
@pytest.mark.weights
async def test_live_speech_of_synthesised_voices_is_labelled_and_an_enrolled_one_named() -> None:
    encoder = configured(SPEAKER, "resemblyzer")
    transcriber = LocalSTTModel(*described(STT, "whisper_base"))
    vad = configured(VAD, "silero")
    man, woman = kokoro("am_adam", QUESTION), kokoro("af_heart", ANSWER)
    pause = np.zeros(STT_SAMPLE_RATE, np.float32)
    checker = SampleChecker(AudioDecoder(), vad, lambda: encoder, RULES)
    with pytest.raises(InvalidAudio, match="more than one speaker"):
        speakers.voice_of([np.concatenate([man, man, pause, woman, woman])], checker)
    enrolled = speakers.voice_of([kokoro("af_heart", QUESTION)], checker).astype(np.float64)
    known = (SpeakerVoice(enrolled, math.inf, "Ann"),)
    config = load_yaml(ListeningConfig, "listening")
    heard: list[LiveTranscript] = []

    async def emit(event: LiveEvent) -> None:
        if isinstance(event, LiveTranscript) and event.final and event.text:
            heard.append(event)

    options = SessionOptions(
        RecognitionOptions(languages=("en",), words=True), speakers=SpeakerOptions(encoder, known)
    )
    session = LiveSession(LiveTranscriptionPipeline(transcriber, vad, config), options, emit)
    running = asyncio.create_task(session.run())
    for piece in (man, pause, woman, pause, man, pause):
        await session.accept_pcm(piece)
    await session.finish()
    running.cancel()
    await session.close()
    assert [final.speaker for final in heard] == ["A", "Ann", "A"]
    assert heard[1].speakers == ["Ann"] * len(heard[1].words)


class TurnsEncoder:
    """Hears one speaker in positive samples and the other in negative ones, and a mean of both in
    windows across a change."""

    def __init__(self, likeness: float) -> None:
        self._voices = np.eye(2, EMBEDDING_SIZE, dtype=np.float32)
        self._voices[1, :2] = likeness, math.sqrt(1 - likeness**2)

    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        shares = np.array([np.mean(pcm[start:end] > 0) for start, end in windows], np.float32)
        mixed = np.outer(shares, self._voices[0]) + np.outer(1 - shares, self._voices[1])
        return np.asarray(mixed / np.linalg.norm(mixed, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("turn_s", [3, 5, 10])
@pytest.mark.parametrize(("likeness", "are_several"), [(0.45, True), (0.6, False), (0.9, False)])
def test_groups_of_windows_are_speakers_only_if_they_are_unlike(
    turn_s: int, likeness: float, are_several: bool
) -> None:
    turns = np.arange(30 * STT_SAMPLE_RATE) // (turn_s * STT_SAMPLE_RATE) % 2
    pcm = np.where(turns == 0, 1, -1).astype(np.float32)
    encoder = cast(SpeakerEncoder, TurnsEncoder(likeness))
    assert has_several_speakers(pcm, encoder) == are_several
