"""ElevenLabs' `POST /v1/text-to-dialogue`: the lines of several voices as one speech."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Annotated, Any, ClassVar, Self

from fastapi import Depends
from pydantic import Field, model_validator
from starlette.responses import Response

from api.callers import CallerDep
from api.dialects.outputs import AudioWriter
from api.elevenlabs import options
from api.elevenlabs.speech import STREAMED, OpenedSpeech, TimedAudio, TimedWriter
from api.http.bodies import NOT_BLANK, SPOKEN
from api.http.routing import make_router
from api.http.streaming import NdjsonStream
from api.native.speech import TEXT_CHARACTERS
from api.sockets.tts.events import LenientModel
from pipelines.tts.history import SpokenLine
from pipelines.tts.reading import ScriptTurn
from pipelines.tts.shaping import TimedWord

router = make_router("ElevenLabs' dialect", scope="tts", visitors=True, schemes=options.SCHEMES)

PATH = "/v1/text-to-dialogue"
MAX_LINES = 100


class DialogueLine(LenientModel):
    """The text of one voice."""

    text: Annotated[str, Field(min_length=1), NOT_BLANK]
    voice_id: str = Field(
        max_length=200, description="Voice id or name, or the id of an ElevenLabs voice."
    )


class Dialogue(options.ElevenLabsVoicing):
    """The lines of a dialogue, and their settings. The voices determine the models."""

    free_cues: ClassVar[bool] = True

    inputs: Annotated[list[DialogueLine], SPOKEN] = Field(min_length=1, max_length=MAX_LINES)
    model_id: str | None = Field(default=None, max_length=200, description="Has no effect.")
    language_code: str | None = Field(default=None, max_length=35)
    voice_settings: options.VoiceSettings | None = Field(default=None, alias="settings")

    @model_validator(mode="after")
    def _has_length(self) -> Self:
        if len(self.text) > TEXT_CHARACTERS:
            raise ValueError(
                f"inputs: the lines have {len(self.text)} characters, and at most "
                f"{TEXT_CHARACTERS} are allowed"
            )
        return self

    @property
    def text(self) -> str:
        """The texts of all lines, joined by line feeds."""
        return "\n".join(line.text for line in self.inputs)


class VoiceSegment(LenientModel):
    """Characters that one voice speaks, as a range of the characters in `alignment`."""

    voice_id: str
    start_time_seconds: float
    end_time_seconds: float
    character_start_index: int
    character_end_index: int = Field(description="The range ends before this character.")
    dialogue_input_index: int


class TimedDialogue(TimedAudio):
    """Audio of a dialogue or of a part of it, with character times and voices."""

    voice_segments: list[VoiceSegment]


@dataclass(frozen=True, slots=True)
class OpenedDialogue(OpenedSpeech):
    """A dialogue, and the stream that will speak it."""

    lines: Sequence[DialogueLine]

    @property
    def writer(self) -> "DialogueWriter":
        return DialogueWriter(self.separator, self.lines)


def opens(*, timings: bool = False, whole: bool = False) -> Any:
    """Returns a dependency that opens a dialogue; with `whole`, it is sent only when complete."""

    async def open_dialogue(
        body: Dialogue, caller: CallerDep, query: options.Output
    ) -> OpenedDialogue:
        first = body.inputs[0].voice_id
        names = {line.voice_id for line in body.inputs}
        async with caller.recording_failures(first):
            voices = {
                name: await options.find_voice(name, caller, body.language_code, body.text)
                for name in names
            }
        turns = [ScriptTurn(text=line.text, voice=voices[line.voice_id].id) for line in body.inputs]
        style = replace(body.style(timings=timings), script=tuple(turns))
        stream = query.open_stream(caller, voices[first], style, whole=whole)
        lines = [
            SpokenLine(
                text=line.text, voice_id=line.voice_id, voice_name=voices[line.voice_id].info.name
            )
            for line in body.inputs
        ]
        record = query.record(caller, stream, lines=lines)
        return OpenedDialogue(stream, body.text, query.media_type, record, body.inputs)

    return Depends(open_dialogue)


@router.post(f"{PATH}/stream", summary="Stream a dialogue, for ElevenLabs' clients", **STREAMED)
@router.post(PATH, summary="Synthesise a dialogue, for ElevenLabs' clients", **STREAMED)
async def speak(opened: Annotated[OpenedDialogue, opens()]) -> Response:
    """Speaks the lines in turn, as one file. Sends the first audio before the second sentence is
    synthesised."""
    return await opened.streamed(AudioWriter(), opened.media_type)


@router.post(
    f"{PATH}/stream/with-timestamps",
    summary="Stream a dialogue with character times, for ElevenLabs' clients",
    responses=NdjsonStream.documented(TimedDialogue, "One JSON object per line"),
)
async def stream_with_timestamps(
    opened: Annotated[OpenedDialogue, opens(timings=True)],
) -> Response:
    """Streams JSON lines. Times count from the start of the speech, and character indices from the
    start of the line. On failure, the last line has `detail`."""
    return await opened.streamed(opened.writer)


@router.post(
    f"{PATH}/with-timestamps",
    summary="Synthesise a dialogue with character times, for ElevenLabs' clients",
    response_model=TimedDialogue,
)
async def speak_with_timestamps(
    opened: Annotated[OpenedDialogue, opens(timings=True, whole=True)],
) -> Response:
    """Returns the whole dialogue as one file. Synthesis stops if the client disconnects."""
    return await opened.whole(opened.writer)


class DialogueWriter(TimedWriter):
    """Writes audio with the times of characters, and the voices that speak them."""

    def __init__(self, separator: str, lines: Sequence[DialogueLine]) -> None:
        super().__init__(separator)
        self._lines = lines
        # Place in the joined text where each line starts.
        self._starts = [0, *accumulate(len(line.text) + 1 for line in lines)]

    def timing(self, words: Sequence[TimedWord], *, is_whole: bool = False) -> dict[str, Any]:
        segments: list[dict[str, Any]] = []
        place = 0
        spoken = (word for word in words if not word.mark)
        for number, turn in groupby(
            spoken, lambda word: bisect_right(self._starts, word.text_start) - 1
        ):
            of_line = list(turn)
            start = place
            place += sum(len(word.word) + len(self._separator) for word in of_line)
            segments.append(
                {
                    "voice_id": self._lines[number].voice_id,
                    "start_time_seconds": round(of_line[0].start_s, 3),
                    "end_time_seconds": round(of_line[-1].end_s, 3),
                    "character_start_index": start,
                    "character_end_index": place,
                    "dialogue_input_index": number,
                }
            )
        if is_whole and segments:
            segments[-1]["character_end_index"] -= len(self._separator)
        return {**super().timing(words, is_whole=is_whole), "voice_segments": segments}
