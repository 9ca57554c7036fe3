"""Signal processing between the engine's audio of each text chunk and the client's speech."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from models.audio import AudioChunk, Pcm, StreamResampler, WordTime
from models.watermark.base import Marking, Watermark
from pipelines.audio import effects
from pipelines.audio.effects import TARGET_LUFS, HighPass, LoudnessNormaliser
from pipelines.text.alignment import SourceWord
from pipelines.text.chunking import TextChunk
from pipelines.text.spoken_length import spoken_length
from pipelines.tts.pacing import EngineAudio
from pipelines.tts.reading import SpokenPassage
from pipelines.tts.voices import AvailableVoice

SNIPPET_S = 0.05  # shorter audio, such as the end of a text chunk, is not worth a message
SNIPPET_LEAD_S = 0.3  # a client with so much left to play does not wait for a snippet
MOST_VOICES = 10_000  # number of voices whose loudness is remembered: those that spoke last
_MOST_REMEMBERED_S = 60.0  # speech by which the loudness of a voice is known


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word of the caller's text with its times, in seconds from the start of the speech."""

    word: str  # written as by the caller, with punctuation
    start_s: float
    end_s: float
    text_start: int  # offsets into the caller's text
    text_end: int
    mark: str = ""  # the name of a mark of SSML, which is no word


def timings_json(words: Sequence[TimedWord]) -> dict[str, Any]:
    """Format words as responses list them, to the millisecond: `words`, and perhaps `marks`."""
    timings: dict[str, list[dict[str, Any]]] = {"words": []}
    for word in words:
        start = round(word.start_s, 3)
        place = {"text_start": word.text_start}
        if word.mark:
            timings.setdefault("marks", []).append({"mark": word.mark, "time": start, **place})
        else:
            times = {"word": word.word, "start": start, "end": round(word.end_s, 3)}
            timings["words"].append({**times, **place, "text_end": word.text_end})
    return timings


@dataclass(frozen=True, slots=True)
class SpokenChunk:
    """Audio, and if requested the words that begin in it."""

    audio: AudioChunk
    words: tuple[TimedWord, ...] = ()
    text_end: int = 0  # characters of the caller's text up to the end of the text chunk
    letters: int = 0  # letters that are spoken up to that end


class VoiceLevels:
    """The loudness of each voice, measured over its speech."""

    def __init__(self) -> None:
        self._measured: dict[str, tuple[float, float]] = {}  # LUFS, and seconds of speech, by id

    def of(self, voice: AvailableVoice) -> float | None:
        """Return the loudness of a voice in LUFS; None if it has not spoken yet."""
        measured = self._measured.get(voice.id)
        return None if measured is None else measured[0]

    def learn(self, voice: AvailableVoice, lufs: float, duration_s: float) -> None:
        """Add a measurement over `duration_s` > 0."""
        before_lufs, before_s = self._measured.pop(voice.id, (0.0, 0.0))
        total_s = before_s + duration_s
        level = (before_lufs * before_s + lufs * duration_s) / total_s
        self._measured[voice.id] = (level, min(total_s, _MOST_REMEMBERED_S))
        if len(self._measured) > MOST_VOICES:
            del self._measured[next(iter(self._measured))]


@dataclass(eq=False, repr=False)
class StreamEnhancer:
    """Enhances a stream as `effects.enhance` does a whole signal, without waiting for the end.
    Applies high-pass, loudness and true-peak limit; blocking, 2 ms for 0.5 s."""

    _levels: VoiceLevels
    _voice: AvailableVoice
    target_lufs: float = TARGET_LUFS
    _: KW_ONLY
    high_pass: bool = True
    _high_pass: HighPass | None = None
    _learnt_s: float = 0.0  # speech that the voice's level already counts

    def __post_init__(self) -> None:
        start = self._levels.of(self._voice)
        self._normaliser = LoudnessNormaliser(self.target_lufs, start)

    def process(self, chunk: AudioChunk) -> Pcm:
        """Process audio; about as many samples come out as go in, since 9 ms are held back."""
        pcm = chunk.pcm
        if self.high_pass:
            if self._high_pass is None:
                self._high_pass = HighPass(chunk.sample_rate)
            pcm = self._high_pass.process(pcm)
        return self._normaliser.process(pcm, chunk.sample_rate)

    def flush(self) -> Pcm:
        """Return the samples held back, and learn the voice's level; the stream may continue."""
        measured_s = self._normaliser.measured_s
        if (lufs := self._normaliser.measured_lufs) is not None and measured_s > self._learnt_s:
            self._levels.learn(self._voice, lufs, measured_s - self._learnt_s)
            self._learnt_s = measured_s
        return self._normaliser.flush()


@dataclass(eq=False, repr=False)
class SpeechProcessor:
    """The signal processing of a text: shaping, pauses, enhancement and the watermark."""

    _passages: Sequence[SpokenPassage]
    _: KW_ONLY
    enhance: Callable[[AvailableVoice], StreamEnhancer] | None = None
    watermark: Watermark | None = None
    sample_rate: int = 0  # Hz of all audio; 0: the rate of the first audio
    _enhancer: StreamEnhancer | None = None  # the enhancer of `_voice`
    _voice: AvailableVoice | None = None  # the voice that speaks
    _marking: Marking | None = None  # opened when the sample rate is known
    _passage: int = -1  # the last passage that gave audio
    _resampler: StreamResampler | None = None  # resamples the current text chunk
    _shaper: "ChunkShaper | None" = None  # shapes the current text chunk
    _starts_at: int | None = None  # the sample at which that chunk starts
    _position: int = 0  # samples that were processed
    _pause_s: float = 0.0  # pause before the next text chunk
    # Ready to be taken:
    _pcm: Pcm = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    _words: tuple[TimedWord, ...] = ()
    _text_end: int = 0
    _letters: int = 0

    @property
    def has_audio(self) -> bool:
        """Whether the text chunk has given any audio."""
        return self._starts_at is not None

    def due_s(self, arrived: EngineAudio) -> float:
        """Return the seconds of audio on which `process` would work."""
        return self._open(arrived).due_s(arrived)

    def process(self, arrived: EngineAudio) -> None:
        """Process the audio of a text chunk; blocking. It takes up to 5 ms for 0.5 s with
        enhancement, 20 ms a second with a change of tempo or pitch, and 15 ms with a watermark."""
        shaper = self._open(arrived)
        shaped = shaper.shape(arrived)
        passage = self._passages[arrived.text_chunk.passage]
        rate = self.sample_rate = self.sample_rate or shaper.sample_rate
        if shaper.sample_rate not in (0, rate):  # a voice of another engine
            self._resampler = self._resampler or StreamResampler(shaper.sample_rate, rate)
            shaped = self._resampler.process(shaped, last=arrived.is_end)
        if len(shaped):
            if self._starts_at is None:
                pause = effects.silence(self._take_pause(arrived.text_chunk.passage), rate)
                self._starts_at = self._position + len(pause)
                self._letters += spoken_length(arrived.text_chunk.text)
                shaped = np.concatenate([pause, shaped])
            self._position += len(shaped)
            self._words += shaper.words(self._starts_at / rate)
            self._text_end = arrived.text_chunk.text_end
            if passage.volume_db:
                shaped = shaped * np.float32(10 ** (passage.volume_db / 20))
            if self._enhancer is not None:
                shaped = self._enhancer.process(AudioChunk(shaped, rate))
            self._add(shaped)
        if arrived.is_end:
            if self._starts_at is not None:
                self._pause_s = _pause_s(arrived.text_chunk) / passage.speed
            self._shaper = self._resampler = None

    def _take_pause(self, number: int) -> float:
        """Return the seconds of silence before passage `number`, or before the end."""
        before = self._passage
        begun = self._passages[before + 1 : number + 1]
        if number == before:
            return self._pause_s
        self._passage = number
        given = [passage.pause_s for passage in begun if passage.pause_s is not None]
        if given or before < 0 or number == len(self._passages):
            return sum(given)
        return max(passage.gap_s / passage.speed for passage in begun)

    def finish(self) -> None:
        """Add the audio that enhancement and watermark held back, after the last text chunk."""
        if self.sample_rate:
            if self._enhancer is not None:
                self._add(self._enhancer.flush())
            self._add(effects.silence(self._take_pause(len(self._passages)), self.sample_rate))
            if self._marking is not None:
                self._pcm = np.concatenate([self._pcm, self._marking.flush()])

    def take(self, lead_s: float) -> SpokenChunk | None:
        """Return the audio that is ready; a snippet waits while the client has enough to play."""
        duration_s = len(self._pcm) / (self.sample_rate or 1)
        if not duration_s or (duration_s < SNIPPET_S and lead_s > SNIPPET_LEAD_S):
            return None
        audio = AudioChunk(self._pcm, self.sample_rate)
        chunk = SpokenChunk(audio, self._words, self._text_end, self._letters)
        self._pcm = self._pcm[:0]
        self._words = ()
        return chunk

    def _open(self, arrived: EngineAudio) -> "ChunkShaper":
        if self._shaper is None:
            passage = self._passages[arrived.text_chunk.passage]
            self._shaper = ChunkShaper(arrived.text_chunk, tempo=passage.tempo, pitch=passage.pitch)
            self._starts_at = None
            if self.enhance is not None and self._voice is not passage.voice:
                if self._enhancer is not None:
                    self._add(self._enhancer.flush())
                self._voice = passage.voice
                self._enhancer = self.enhance(self._voice)
        return self._shaper

    def _add(self, pcm: Pcm) -> None:
        if self.watermark is not None:
            if self._marking is None:
                self._marking = self.watermark.stream(self.sample_rate)
            pcm = self._marking.process(pcm)
        self._pcm = np.concatenate([self._pcm, pcm])


class ChunkShaper:
    """Trims, fades and stretches the speech of one text chunk, and keeps the times of its words. A
    change of tempo or pitch needs the whole chunk, which then comes at its end."""

    sample_rate = 0  # Hz, known with the first chunk

    def __init__(self, text_chunk: TextChunk, *, tempo: float, pitch: float) -> None:
        self._tempo = tempo
        self._pitch = pitch
        self._stretches = tempo != 1.0 or pitch != 1.0
        self._matcher = WordMatcher(text_chunk.words)
        self._trimmer: effects.SeamTrimmer | None = None
        self._unstretched: list[Pcm] = []
        self._words: list[TimedWord] = []  # matched, and not returned yet
        self._arrived = 0  # samples from the engine
        self._given = 0  # samples returned
        self._ended = False

    def due_s(self, arrived: EngineAudio) -> float:
        """Return the seconds of audio on which `shape` would work: all of it when it stretches at
        the end."""
        seconds = sum(part.duration_s for part in arrived.parts)
        if self._stretches and arrived.is_end and self._trimmer is not None:
            seconds += self._arrived / self.sample_rate
        return seconds

    def shape(self, arrived: EngineAudio) -> Pcm:
        """Shape audio; blocking, under 1 ms for 0.5 s. Tempo and pitch take 20 ms a second."""
        self._ended = arrived.is_end
        parts = [self._push(part) for part in arrived.parts]
        if self._ended:
            parts.append(self._finish())
        shaped = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
        self._given += len(shaped)
        return shaped

    def words(self, begins_s: float) -> tuple[TimedWord, ...]:
        """Return words that begin in the audio returned so far, each once; the chunk begins at
        `begins_s`. The last word waits for its end, from which silence may be trimmed."""
        if self._trimmer is None:
            return ()
        given_s = self._given / self.sample_rate
        trimmed_s = self._trimmer.trimmed / self.sample_rate
        begun: list[TimedWord] = []
        for word in self._words:
            start_s = max(0.0, word.start_s - trimmed_s) / self._tempo
            end_s = max(0.0, word.end_s - trimmed_s) / self._tempo
            if self._ended:  # silence was trimmed off the end
                start_s = min(start_s, given_s)
                end_s = min(end_s, given_s)
            elif start_s >= given_s or (end_s > given_s and self._matcher.is_last):
                break
            begun.append(replace(word, start_s=begins_s + start_s, end_s=begins_s + end_s))
        del self._words[: len(begun)]
        return tuple(begun)

    def _push(self, part: AudioChunk) -> Pcm:
        if self._trimmer is None:
            self.sample_rate = part.sample_rate
            self._trimmer = effects.SeamTrimmer(part.sample_rate)
        self._matcher.add_times(part.words, self._arrived / part.sample_rate)
        self._arrived += len(part.pcm)
        self._words += self._matcher.matched()
        pcm = self._trimmer.push(part.pcm)
        if not self._stretches:
            return pcm
        self._unstretched.append(pcm)
        return pcm[:0]

    def _finish(self) -> Pcm:
        if self._trimmer is None:
            return np.zeros(0, dtype=np.float32)
        pcm = self._trimmer.finish()
        starts = self._trimmer.trimmed
        ends = starts + self._trimmer.given
        self._words += self._matcher.finish(starts / self.sample_rate, ends / self.sample_rate)
        if not self._stretches:
            return pcm
        whole = np.concatenate([*self._unstretched, pcm])
        return effects.stretch(whole, self.sample_rate, tempo=self._tempo, pitch=self._pitch)


class WordMatcher:
    """Matches the words of one text chunk; a written word may be spoken as several. Times count
    from the start of its audio. A word without times is placed by its share of the letters."""

    def __init__(self, words: Sequence[SourceWord]) -> None:
        self.waiting = deque(words)  # words whose times are not known yet
        self._spoken: list[WordTime] = []
        self._placed_to = 0  # offset into the text of the chunk, and its time
        self._placed_s = 0.0

    def add_times(self, words: Sequence[WordTime], offset_s: float) -> None:
        """Add the words of audio that starts at `offset_s`."""
        self._spoken += [
            replace(word, start_s=word.start_s + offset_s, end_s=word.end_s + offset_s)
            for word in words
        ]

    @property
    def is_last(self) -> bool:
        """Whether nothing but marks follows the words that are matched."""
        return all(word.mark for word in self.waiting)

    def matched(self) -> list[TimedWord]:
        """Return words whose times are now known, in order, each once."""
        matched: list[TimedWord] = []
        while self.waiting and self._spoken:
            if self._spoken[-1].text_end < self.waiting[0].spoken_end:
                break
            # A word that is not spoken, for instance if a later one already was, has no duration.
            matched.append(self._take(self._placed_s, self._placed_s))
        return matched

    def finish(self, start_s: float, end_s: float) -> list[TimedWord]:
        """Return the other words of a chunk whose speech lasts from `start_s` to `end_s`."""
        placed: list[TimedWord] = []
        begin = self._placed_to
        begin_s = max(self._placed_s, start_s)
        end = max([begin, *(word.spoken_end for word in self.waiting)])
        per_character = max(0.0, end_s - begin_s) / max(1, end - begin)

        def time_of(place: int) -> float:
            return begin_s + max(0, place - begin) * per_character

        while self.waiting:
            word = self.waiting[0]
            placed.append(self._take(time_of(word.spoken_start), time_of(word.spoken_end)))
        return placed

    def _take(self, start_s: float, end_s: float) -> TimedWord:
        """Take the next word, from the start of its first spoken word to the end of its last, or at
        the given times if there are none. Times are monotonic, even if an engine's are not."""
        source = self.waiting.popleft()
        spoken = [
            word
            for word in self._spoken
            if word.text_start < source.spoken_end and word.text_end > source.spoken_start
        ]
        if spoken:
            start_s = _time_at(spoken[0], max(source.spoken_start, spoken[0].text_start))
            end_s = _time_at(spoken[-1], min(source.spoken_end, spoken[-1].text_end))
        start_s = max(start_s, 0.0)
        end_s = max(end_s, start_s)
        self._placed_to = max(self._placed_to, source.spoken_end)
        self._placed_s = max(self._placed_s, end_s)
        self._spoken = [word for word in self._spoken if word.text_end > source.spoken_end]
        return TimedWord(source.word, start_s, end_s, source.start, source.end, source.mark)


def _time_at(word: WordTime, position: int) -> float:
    share = (position - word.text_start) / max(1, word.text_end - word.text_start)
    return word.start_s + share * (word.end_s - word.start_s)


def _pause_s(text_chunk: TextChunk) -> float:
    if text_chunk.ends_paragraph:
        return effects.PARAGRAPH_PAUSE_S
    return effects.SENTENCE_PAUSE_S if text_chunk.ends_sentence else 0.0
