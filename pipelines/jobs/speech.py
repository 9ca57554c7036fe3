"""Speech of long texts: block by block, then one file with chapters. Chapters are marked as in MP4
(a text track) and in ID3v2 (frames CHAP and CTOC, https://id3.org/id3v2-chapters-1.0); the packets
of the blocks are copied, not encoded again."""

import asyncio
import io
import re
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import av
from pydantic import TypeAdapter

from db.jobs.jobs import Job
from pipelines.audio.effects import PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S
from pipelines.audio.encode.encoder import TAGS, FileWriter, OutputFormat
from pipelines.billing.billing import Billing
from pipelines.errors import FileTooLarge, InvalidRequest, NotFound, NothingToSpeak
from pipelines.jobs.documents.book import CHAPTERS, Book, SpokenChapter
from pipelines.jobs.leases import until_available
from pipelines.jobs.queue import JobQueue
from pipelines.text.segmentation import finished
from pipelines.text.spoken_length import (
    LETTERS_PER_S,
    LINE_PAUSE,
    SENTENCE_PAUSE,
    most_spoken,
    spoken_length,
)
from pipelines.tts.cues import dropped_cues, uncut
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.pipeline import SpeechPlan
from pipelines.tts.reading import SENTENCE_END, SpeechRequest, is_ssml, written_and_breaks
from pipelines.tts.reasoning import ReasoningFilter

BookFormat = Literal["m4b", "mp3"]
MEDIA_TYPES = {"m4b": "audio/mp4", "mp3": "audio/mpeg"}
CHAPTER_PAUSE_S = 1.2  # silence between two chapters, at the usual speed
MAX_SSML = 100_000  # characters (two hours of speech), which are spoken as one block
# A paragraph of up to N characters, or a part of a sentence that ends with a clause, at a space, or
# anywhere.
_PARTS = r".{1,N}\Z|.{1,N}(?<=[,;:—])\s|.{1,N}(?<=[，；：、])|.{1,N}\s|.{1,N}"
_CODECS = {"m4b": "aac", "mp3": "mp3"}
_CONTAINERS = {"m4b": "mp4", "mp3": "mp3"}


class Block(NamedTuple):
    """Text that one request speaks."""

    chapter: int  # index
    text: str
    pause_s: float = PARAGRAPH_PAUSE_S  # silence before the next block of the chapter


@dataclass(frozen=True, slots=True)
class SpeechTask:
    """Task of a job that speaks a book; `request` has the options of all blocks, and the voice of
    chapters without `voices`."""

    book: Book
    request: SpeechRequest
    output_format: BookFormat
    block_characters: int
    voices: tuple[str, ...] = ()  # id of the voice of each chapter

    def blocks(self) -> Iterator[Block]:
        """Yields the blocks of all chapters. Raises FileTooLarge."""
        most = self.block_characters
        parts = re.compile(_PARTS.replace("N", str(most)), re.DOTALL)
        for number, chapter in enumerate(self.book.chapters):
            if is_ssml(chapter.text):  # cannot be split
                if len(chapter.text) > MAX_SSML:
                    raise FileTooLarge(f"document: SSML has at most {MAX_SSML} characters")
                yield Block(number, chapter.text)
                continue
            block = ""
            pause_s = PARAGRAPH_PAUSE_S
            language = self.book.language.partition("-")[0].lower() or "en"
            reasoning = ReasoningFilter()  # may drop more than a block
            text = reasoning.feed(chapter.text) + reasoning.finish()
            for paragraph in text.split("\n\n"):
                rest = len(paragraph)
                for part in _uncut_parts(parts, paragraph, most, language):
                    if block and len(block) + len(part) > most:
                        yield Block(number, block, pause_s)
                        block = ""
                    ends_paragraph = pause_s == PARAGRAPH_PAUSE_S
                    block += f"\n\n{part}" if block and ends_paragraph else part
                    rest -= len(part)
                    pause_s = PARAGRAPH_PAUSE_S
                    if rest:
                        pause_s = SENTENCE_PAUSE_S if SENTENCE_END.search(part[-20:]) else 0.0
            yield Block(number, block)

    @contextmanager
    def errors_of(self, chapter: int) -> Generator[None]:
        """Names the chapter with this index in an error of its text."""
        try:
            yield
        except InvalidRequest as error:
            title = self.book.chapters[chapter].title
            if (message := str(error)).startswith("text: "):
                error.args = (f"document: chapter “{title}”: {message.removeprefix('text: ')}",)
            raise

    def requests(self) -> Iterator[tuple[Block, SpeechRequest]]:
        """Yields each block with its request, which has the manner of earlier cues."""
        manner = dict[str, str]()
        chapter = 0
        for block in self.blocks():
            number, text, _ = block
            manner = manner if number == chapter else {}
            chapter = number
            voice_id = self.voices[number] if self.voices else self.request.voice_id
            request = replace(self.request, text=text, voice_id=voice_id, manner=dict(manner))
            yield block, request
            if not is_ssml(text):
                dropped_cues(text, free=self.request.free_cues, manner=manner)


def _uncut_parts(parts: re.Pattern[str], paragraph: str, most: int, language: str) -> Iterator[str]:
    """Yields the parts of a paragraph, of whole sentences where they fit into `most` characters.
    None ends inside a cue."""
    position = 0
    while part := parts.match(paragraph, position):
        end = part.end()
        if end < len(paragraph):
            window = paragraph[position : position + most]
            last = max(window.rfind(" "), window.rfind("\n"))
            sentences = finished(window[: last + 1] or window, language)
            end = uncut(paragraph, position + sentences if sentences else end)
        end = end if end > position else part.end()
        yield paragraph[position:end]
        position = end


TASK = TypeAdapter(SpeechTask)


def most_characters(text: str, billing: Billing) -> int:
    """Returns the characters that are held for a block, and charged at most."""
    return billing.speech_characters(len(text), most_spoken(text))


def estimates(task: SpeechTask, billing: Billing) -> list[tuple[int, float]]:
    """Estimates for each chapter the characters that are charged at most, and the length of the
    speech (s). The length is that of the text as written, with numbers and signs not put into
    words. Blocking. Raises InvalidRequest or FileTooLarge."""
    chapters = [(0, 0.0)] * len(task.book.chapters)
    for number, block, _ in task.blocks():
        with task.errors_of(number):
            text, breaks_s = written_and_breaks(replace(task.request, text=block))
        pauses = LINE_PAUSE * text.count("\n\n") + SENTENCE_PAUSE * text.count(". ")
        letters = spoken_length(text) + pauses
        characters, seconds = chapters[number]
        chapters[number] = (
            characters + most_characters(block, billing),
            seconds + letters / LETTERS_PER_S / task.request.speed + breaks_s,
        )
    return chapters


async def speak(
    jobs: JobQueue, job: Job, task: SpeechTask, path: Path, synthesis: PaidSynthesis
) -> None:
    """Speaks a text from the first block that is not stored yet, and writes it to `path`. All
    blocks are planned first, so that a text that cannot be spoken fails before any work is done
    in vain. Raises LeaseLost, InsufficientCredit, or as `SpeechPipeline.plan` and `speak`."""
    blocks = [*task.requests()]
    held = sum(most_characters(request.text, synthesis.billing) for _, request in blocks)
    await jobs.hold(job, held)
    results = await until_available(partial(jobs.files, job, "result"))
    if not results:
        for block, request in blocks:
            with suppress(NothingToSpeak), task.errors_of(block.chapter):
                await until_available(partial(_plan, request, synthesis))
    codec = cast(OutputFormat, _CODECS[task.output_format])
    sample_rate = await until_available(partial(_sample_rate, task, synthesis))
    began = time.monotonic()
    for number, (block, request) in enumerate(blocks[len(results) :], start=len(results) + 1):
        pause_s = 0.0
        if number < len(blocks):
            is_same = blocks[number][0].chapter == block.chapter
            pause_s = block.pause_s if is_same else CHAPTER_PAUSE_S
        call = partial(_spoken, codec, sample_rate, request, pause_s, synthesis)
        data, seconds, units = await until_available(call)
        progress = number / (len(blocks) + 1)
        await jobs.keep(job, "result", number, data, seconds, units, progress)
        if number < len(blocks) and await jobs.give_way(job, began):
            return
    results = await until_available(partial(jobs.files, job, "result"))
    if not any(audio.seconds for audio in results):
        raise NothingToSpeak("document: the voice cannot read any of its letters")
    lengths = Counter[int]()
    for (block, _), audio in zip(blocks, results, strict=True):
        lengths[block.chapter] += round(audio.seconds * 1000)
    starts = accumulate(lengths.values(), initial=0)
    chapters = [
        SpokenChapter(task.book.chapters[number].title, start / 1000, (start + length) / 1000)
        for (number, length), start in zip(lengths.items(), starts, strict=False)
        if length  # players refuse chapters without sound, such as one of "* * *"
    ]
    with closing(_book(path, task, chapters)) as file:
        next(file)
        for audio in results:
            if audio.seconds:
                data = await until_available(partial(jobs.read, job, audio))
                await asyncio.to_thread(file.send, data)
    media_type = MEDIA_TYPES[task.output_format]
    await jobs.complete(job, path, media_type, chapters=CHAPTERS.dump_json(chapters))


async def _sample_rate(task: SpeechTask, synthesis: PaidSynthesis) -> int | None:
    """Returns the sample rate (Hz) of the stream of all blocks: that of the task's own voice."""
    request = task.request
    directory = synthesis.pipeline.directory
    voice = await directory.find(request.voice_id, request.voice, request.workspace_id)
    return None if voice is None else voice.model.sample_rate


async def _spoken(
    output_format: OutputFormat,
    sample_rate: int | None,
    request: SpeechRequest,
    pause_s: float,
    synthesis: PaidSynthesis,
) -> tuple[bytes, float, int]:
    """Speaks a block with a pause after it; returns its audio, its length (s) and the characters to
    charge."""
    writer = FileWriter(output_format, sample_rate)
    try:
        plan = await _plan(request, synthesis)
        await synthesis.pipeline.speak(plan, writer.add)
    except NothingToSpeak:  # for example a line of asterisks, or letters that the voice cannot read
        return b"", 0.0, 0
    await asyncio.to_thread(writer.add_silence, pause_s / request.speed)
    data = (await asyncio.to_thread(writer.finish)).data
    return data, await asyncio.to_thread(_seconds_of, data), synthesis.characters(plan)


async def _plan(request: SpeechRequest, synthesis: PaidSynthesis) -> SpeechPlan:
    try:
        return await synthesis.pipeline.plan(request)
    except NotFound:  # a dictionary was deleted, which must not make the job free
        return await synthesis.pipeline.plan(replace(request, pronunciations=()))


def _book(
    path: Path, task: SpeechTask, chapters: Sequence[SpokenChapter]
) -> Generator[None, bytes, None]:
    """Writes the blocks sent to it to a file with chapters and a cover, until closed. Blocking."""
    book = task.book
    at = 0  # position of the next packet, in ticks of the stream
    audio: Any = None
    with av.open(str(path), "w", format=_CONTAINERS[task.output_format]) as file:
        file.metadata.update({**TAGS, "title": book.title, "artist": book.author})
        marks: Any = [
            {"id": number, "time_base": Fraction(1, 1000), "metadata": {"title": chapter.title}}
            | {"start": round(chapter.start * 1000), "end": round(chapter.end * 1000)}
            for number, chapter in enumerate(chapters)
        ]
        file.set_chapters(marks)
        while data := (yield):
            with av.open(io.BytesIO(data), "r") as block:
                source = block.streams.audio[0]
                if audio is None:
                    audio = file.add_stream_from_template(source)
                    if book.cover:
                        _add_cover(file, b64decode(book.cover))
                for packet in block.demux(source):
                    if packet.size:  # the last one is empty
                        packet.stream = audio
                        packet.pts = packet.dts = at
                        at += packet.duration or 0
                        file.mux(packet)


def _add_cover(file: Any, data: bytes) -> None:
    """Adds the cover unchanged: no library reads the image."""
    codec = "png" if data.startswith(b"\x89PNG") else "mjpeg"
    stream = file.add_mux_stream(codec, width=1, height=1)  # the file does not state the size
    stream.disposition = av.stream.Disposition.attached_pic
    packet: Any = av.Packet(data)
    packet.stream = stream
    file.mux(packet)


def _seconds_of(data: bytes) -> float:
    """Returns the length (s) of all packets, with the padding that a decoder drops."""
    with av.open(io.BytesIO(data), "r") as block:
        stream = block.streams.audio[0]
        ticks = sum(packet.duration or 0 for packet in block.demux(stream))
        return float(ticks * (stream.time_base or 0))
