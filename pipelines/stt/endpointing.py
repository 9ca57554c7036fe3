"""Endpointing: finds the utterances of a signal by the speech probabilities of its frames.

A pure state machine with hysteresis: the only clock is the number of frames. Positions are samples
from the start of the signal. `FrameBuffer` holds the audio of those utterances."""

import math
import sys
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from configs.schema.transcription import EndpointingConfig
from models.audio import Pcm
from models.vad.base import VAD_SAMPLE_RATE
from pipelines.audio.levels import Leveller
from pipelines.audio.segments import Spans, SpeechSegment, spans_of

LEVEL_FRAMES = 3  # length of a pause between words; the quietest such place is cut


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Speech began at `at`; the utterance's audio begins at `start`, a little before."""

    at: int
    start: int


@dataclass(frozen=True, slots=True)
class Paused:
    """A short silence, which a LikelyEnd may follow; the utterance so far is [start, end)."""

    start: int
    end: int
    speech_frames: int


@dataclass(frozen=True, slots=True)
class LikelyEnd:
    """Silence since `speech_end`, so that the utterance is probably [start, end)."""

    start: int
    speech_end: int
    end: int
    speech_frames: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Speech continues after a LikelyEnd."""


@dataclass(frozen=True, slots=True)
class UtteranceEnded:
    """The utterance is [start, end). When `cut`, another begins at `end` without a pause."""

    start: int
    speech_start: int
    speech_end: int
    end: int
    speech_frames: int
    cut: bool = False


Event = SpeechStarted | Paused | LikelyEnd | Resumed | UtteranceEnded


@dataclass(frozen=True, slots=True)
class SilenceTurns:
    """A turn ends after a silence of a fixed length."""

    silence_ms: int = 500
    padding_ms: int = 300  # audio before the speech
    threshold: float = 0.5  # probability at which speech begins


@dataclass(frozen=True, slots=True)
class SemanticTurns:
    """A turn ends soon after a complete sentence, otherwise after `longest_wait_ms` of silence."""

    longest_wait_ms: int = 4000
    complete: float = 0.5  # probability from which a turn counts as complete; 1 for never
    shortest_wait_ms: int = 200  # silence that ends a turn that sounds complete


@dataclass(frozen=True, slots=True)
class ManualTurns:
    """A turn ends when the client says so."""


TurnPolicy = SilenceTurns | SemanticTurns | ManualTurns


@dataclass(slots=True)
class _OpenUtterance:
    start: int  # positions are samples
    speech_start: int
    speech_end: int
    speech_frames: int
    likely_end: int | None = None  # `end` of the LikelyEnd event


class Endpointer:
    """State machine of one signal.

    Each utterance gives SpeechStarted, then LikelyEnd and Resumed alternately, then UtteranceEnded;
    if enabled, Paused comes in each pause of speech. Utterances never overlap. One longer than the
    limit is cut at its quietest recent place, into two utterances with one SpeechStarted."""

    def __init__(
        self,
        config: EndpointingConfig,
        frame_samples: int,
        utterance_end_ms: float,
        *,
        whole_turns: bool = False,
        pause_ms: float = math.inf,
    ) -> None:
        """`pause_ms` is the silence after which Paused comes. An utterance that becomes too long
        in a pause ends there; with `whole_turns`, it is cut: only silence ends a turn."""
        self._config = config
        self._frame = frame_samples
        self._whole_turns = whole_turns
        self._end_after = self._usual_end = _samples(utterance_end_ms / 1000)
        self._likely_after = min(_samples(config.likely_end_ms / 1000), self._end_after)
        self._pause_after = _samples(pause_ms / 1000)
        self._longest = max(_samples(config.max_utterance_s), 4 * LEVEL_FRAMES * frame_samples)
        self._pre_roll = _samples(config.pre_roll_ms / 1000)
        self._position = 0  # samples so far
        self._run = 0  # consecutive frames of speech so far
        self._free_from = 0  # end of the last utterance
        self._utterance: _OpenUtterance | None = None
        frames = int(_samples(config.cut_search_s) // frame_samples)
        self._levels: deque[tuple[int, float, bool]] = deque(maxlen=max(frames, 2 * LEVEL_FRAMES))

    @property
    def speaking(self) -> bool:
        """Whether an utterance is open and its last frame was speech."""
        return self._utterance is not None and self._utterance.speech_end == self._position

    @property
    def silent_to(self) -> int:
        """Position before which no utterance can begin any more, while none is open."""
        return self._position - self._run * self._frame

    @property
    def keep_from(self) -> int:
        """First sample that an open or future utterance may still need."""
        if self._utterance is not None:
            return self._utterance.start
        return max(self._free_from, self.silent_to - self._pre_roll)

    def accept_frame(self, probability: float, level: float) -> list[Event]:
        """Takes the next frame; `level` is its loudness on any increasing scale."""
        self._position += self._frame
        if self._utterance is None:
            return self._detect_start(probability)
        self._levels.append((self._position, level, probability >= self._config.silence_threshold))
        if self._utterance.likely_end is None:
            events = self._continue(self._utterance, probability)
        else:
            events = self._confirm_end(self._utterance, probability)
        utterance = self._utterance
        if utterance is None or utterance.likely_end is not None:
            return events
        if self._position - utterance.start >= self._longest:
            events += self._cut(utterance)
        return events

    def always_end_after(self, silence_ms: float) -> None:
        """Changes the silence that ends utterances, including the open one."""
        self._end_after = self._usual_end = _samples(silence_ms / 1000)

    def end_after(self, silence_ms: float) -> None:
        """Changes the silence that ends the open utterance, until it resumes."""
        self._end_after = _samples(silence_ms / 1000)

    def finish(self) -> list[Event]:
        """Ends an open utterance, such as at the end of the signal."""
        return [] if self._utterance is None else [self._end(self._utterance)]

    def reset(self) -> None:
        self._utterance = None
        self._run = 0
        self._free_from = self._position
        self._end_after = self._usual_end

    def take_back(self, padding: int) -> None:
        """Takes back the last frame, which ended with `padding`; no utterance may be open."""
        self._free_from = min(self._free_from, self._position - padding)
        self._position -= self._frame
        self._run = 0

    def _detect_start(self, probability: float) -> list[Event]:
        self._run = self._run + 1 if probability >= self._config.speech_threshold else 0
        if self._run < self._config.start_frames:
            return []
        at = self._position - self._run * self._frame
        start = max(self._free_from, at - self._pre_roll, 0)
        self._utterance = _OpenUtterance(
            start=start, speech_start=at, speech_end=self._position, speech_frames=self._run
        )
        self._levels.clear()
        return [SpeechStarted(at, start)]

    def _continue(self, utterance: _OpenUtterance, probability: float) -> list[Event]:
        """Takes a frame during speech: any that may be speech continues it."""
        if probability >= self._config.silence_threshold:
            utterance.speech_end = self._position
            utterance.speech_frames += 1
            return []
        events: list[Event] = []
        silence = self._position - utterance.speech_end
        if silence - self._frame < self._pause_after <= silence:
            frames = utterance.speech_frames
            events.append(Paused(utterance.start, end=self._position, speech_frames=frames))
        if silence < self._likely_after:
            return events
        self._run = 0
        utterance.likely_end = self._position
        events.append(
            LikelyEnd(
                start=utterance.start,
                speech_end=utterance.speech_end,
                end=self._position,
                speech_frames=utterance.speech_frames,
            )
        )
        if silence >= self._end_after:
            events.append(self._end(utterance))
        return events

    def _confirm_end(self, utterance: _OpenUtterance, probability: float) -> list[Event]:
        """Takes a frame after a likely end: only what could begin an utterance resumes it."""
        self._run = self._run + 1 if probability >= self._config.speech_threshold else 0
        if self._run >= self._config.start_frames:
            utterance.likely_end = None
            utterance.speech_end = self._position
            utterance.speech_frames += self._run
            self._end_after = self._usual_end
            return [Resumed()]
        silent = self._position - utterance.speech_end >= self._end_after
        long = self._position - utterance.start >= self._longest
        # A frame of speech may be the first of several, so the end waits for the next frames.
        if self._run or not (silent or long):
            return []
        ended = self._end(utterance)
        if silent or not self._whole_turns:
            return [ended]
        end = ended.end
        self._utterance = _OpenUtterance(end, speech_start=end, speech_end=end, speech_frames=0)
        return [replace(ended, cut=True)]

    def _end(self, utterance: _OpenUtterance) -> UtteranceEnded:
        """Ends the utterance, at its likely end if there was one: only silence followed."""
        end = self._position if utterance.likely_end is None else utterance.likely_end
        self._utterance = None
        self._end_after = self._usual_end
        self._run = 0
        self._free_from = end
        return UtteranceEnded(
            start=utterance.start,
            speech_start=utterance.speech_start,
            speech_end=utterance.speech_end,
            end=end,
            speech_frames=utterance.speech_frames,
        )

    def _cut(self, utterance: _OpenUtterance) -> list[Event]:
        """Ends the utterance within its quietest recent frames; another begins there."""
        levels = list(self._levels)
        sums = [
            sum(level for _, level, _ in levels[at : at + LEVEL_FRAMES])
            for at in range(len(levels) - LEVEL_FRAMES + 1)
        ]
        quietest = min(range(len(sums)), key=sums.__getitem__) + LEVEL_FRAMES // 2
        end = levels[quietest][0]
        rest = sum(speech and position > end for position, _, speech in levels)
        ended = UtteranceEnded(
            start=utterance.start,
            speech_start=utterance.speech_start,
            speech_end=min(utterance.speech_end, end),
            end=end,
            speech_frames=max(utterance.speech_frames - rest, 0),
            cut=True,
        )
        self._free_from = end
        self._utterance = _OpenUtterance(
            start=end,
            speech_start=end,
            speech_end=max(utterance.speech_end, end),
            speech_frames=rest,
        )
        return [ended]


def _samples(seconds: float) -> int:
    return sys.maxsize if seconds == math.inf else round(seconds * VAD_SAMPLE_RATE)


class FrameBuffer:
    """Buffer that cuts a stream into frames, and keeps those that an utterance may still need."""

    def __init__(self, frame_samples: int) -> None:
        self.size = frame_samples
        self.leveller = Leveller()
        self.rest: Pcm = np.zeros(0, np.float32)  # samples of an incomplete frame
        self._kept: deque[Pcm] = deque()
        self._probabilities: deque[float] = deque()  # speech probabilities of the kept frames
        self._first = 0  # number of the first kept frame

    def push(self, pcm: Pcm) -> NDArray[np.float32]:
        """Returns the frames that `pcm` completes, float32 [n, frame_samples], levelled."""
        signal = np.concatenate([self.rest, pcm])
        whole = len(signal) // self.size * self.size
        self.rest = signal[whole:].copy()  # a view would hold the whole message
        frames = self.leveller.process(signal[:whole].reshape(-1, self.size))
        self._kept.extend(frame.copy() for frame in frames)
        return frames

    def note_probability(self, probability: float) -> None:
        """Records the speech probability of the next frame."""
        self._probabilities.append(probability)

    def speech(self, start: int, end: int) -> Spans:
        """Finds the speech between two positions, in samples from the first."""
        first, last = start // self.size, -(-end // self.size)
        kept = islice(self._probabilities, first - self._first, last - self._first)
        return spans_of(np.array(list(kept)), self.size, SpeechSegment(0, end - start))

    def padding(self) -> Pcm:
        """Returns the silence that completes the last frame; empty when it is complete."""
        return np.zeros(-len(self.rest) % self.size, np.float32)

    def take_back(self, rest: Pcm) -> None:
        """Takes back the last frame, which `padding` completed: its samples begin the next."""
        self.rest = rest
        self._kept.pop()
        self._probabilities.pop()

    def between(self, start: int, end: int) -> Pcm:
        """Returns kept samples by their positions in the stream, float32 [end - start]."""
        first, last = start // self.size, -(-end // self.size)
        parts = [self._kept[number - self._first] for number in range(first, last)]
        offset = first * self.size
        kept: Pcm = np.concatenate([np.zeros(0, np.float32), *parts])
        return kept[start - offset : end - offset]

    def forget_before(self, position: int) -> None:
        """Drops frames that end at or before `position`."""
        while self._kept and (self._first + 1) * self.size <= position:
            self._kept.popleft()
            self._probabilities.popleft()
            self._first += 1
