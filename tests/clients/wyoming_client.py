"""The client of the package `wyoming`, pointed at this service. Arguments: host, port.

Run by the interpreter of .venv-clients; prints what came as one line of JSON. Requests are made as
Home Assistant's integration makes them: a connection for each.
"""

import asyncio
import json
import math
import struct
import sys
from contextlib import suppress
from typing import Any

from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.handle import Handled, HandledChunk, HandledStop
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

RATE, WIDTH, CHANNELS = 16_000, 2, 1
EARLY_S = 20.0  # until there is audio of a text that has not ended
TEXT = "This is the first sentence. This is the second one. And this is the last."


class Home:
    def __init__(self, host: str, port: str) -> None:
        self._address = host, int(port)

    async def ask(self, *events: Event, last: Any) -> list[Event]:
        """What is answered, up to an event of the class `last`."""
        answers: list[Event] = []
        async with AsyncTcpClient(*self._address) as client:
            for event in events:
                await client.write_event(event)
            while not answers or not last.is_type(answers[-1].type):
                answer = await client.read_event()
                if answer is None:
                    raise ConnectionError([one.type for one in answers])
                answers.append(answer)
        return answers

    async def listen(self, language: str) -> dict[str, Any]:
        tone = b"".join(
            struct.pack("<h", round(9000 * math.sin(number / 5))) for number in range(RATE)
        )
        shape = {"rate": RATE, "width": WIDTH, "channels": CHANNELS}
        events = [Transcribe(language=language).event(), AudioStart(**shape).event()]
        for start in range(0, len(tone), 2048):
            events.append(AudioChunk(audio=tone[start : start + 2048], **shape).event())
        answers = await self.ask(*events, AudioStop().event(), last=TranscriptStop)
        (whole,) = [Transcript.from_event(one) for one in answers if Transcript.is_type(one.type)]
        chunks = [
            TranscriptChunk.from_event(one).text
            for one in answers
            if TranscriptChunk.is_type(one.type)
        ]
        return {"text": whole.text, "language": whole.language, "chunks": "".join(chunks)}

    async def speak(self, voice: str | None) -> dict[str, Any]:
        chosen = SynthesizeVoice(name=voice) if voice else None
        return _sound(await self.ask(Synthesize(TEXT, chosen).event(), last=AudioStop))

    async def stream(self, voice: str) -> dict[str, Any]:
        """Text in pieces, while the audio is read; then all of it again, as older servers want."""
        chosen, answers = SynthesizeVoice(name=voice), list[Event]()
        early = 0
        async with AsyncTcpClient(*self._address) as client:

            async def read() -> None:
                while not answers or not SynthesizeStopped.is_type(answers[-1].type):
                    answer = await client.read_event()
                    if answer is None:
                        return
                    answers.append(answer)

            reading = asyncio.create_task(read())
            await client.write_event(SynthesizeStart(voice=chosen).event())
            for start in range(0, len(TEXT), 8):
                await client.write_event(SynthesizeChunk(TEXT[start : start + 8]).event())
                await asyncio.sleep(0.05)
            with suppress(TimeoutError):
                async with asyncio.timeout(EARLY_S):
                    while not answers:
                        await asyncio.sleep(0.01)
            early = len(answers)
            await client.write_event(Synthesize(TEXT, chosen).event())
            await client.write_event(SynthesizeStop().event())
            await reading
        return {**_sound(answers), "early": early}

    async def talk(self, text: str) -> dict[str, Any]:
        asked = Transcript(text, language="en", context={"conversation_id": "c"})
        answers = await self.ask(asked.event(), last=HandledStop)
        (whole,) = [Handled.from_event(one) for one in answers if Handled.is_type(one.type)]
        chunks = [
            HandledChunk.from_event(one).text for one in answers if HandledChunk.is_type(one.type)
        ]
        return {"text": whole.text, "chunks": "".join(chunks), "context": whole.context}

    async def fail(self) -> dict[str, Any]:
        voice = SynthesizeVoice(name="No One")
        answers = await self.ask(Synthesize(TEXT, voice).event(), last=Error)
        error = Error.from_event(answers[-1])
        return {"text": error.text, "code": error.code}


def _sound(answers: list[Event]) -> dict[str, Any]:
    chunks = [AudioChunk.from_event(one) for one in answers if AudioChunk.is_type(one.type)]
    starts = [AudioStart.from_event(one) for one in answers if AudioStart.is_type(one.type)]
    assert {one.rate for one in chunks} == {one.rate for one in starts}
    return {"seconds": sum(one.seconds for one in chunks), "width": chunks[0].width}


async def main(host: str, port: str) -> dict[str, Any]:
    home = Home(host, port)
    (described,) = await home.ask(Describe().event(), last=Info)
    info = Info.from_event(described)
    (pong,) = await home.ask(Ping("hello").event(), last=Pong)
    voices = {voice.description: voice.name for voice in info.tts[0].voices}
    voice = next(iter(voices.values()))
    return {
        "pong": Pong.from_event(pong).text,
        "programs": [info.asr[0].name, info.tts[0].name, info.handle[0].name],
        "streaming": [
            info.asr[0].supports_transcript_streaming,
            info.tts[0].supports_synthesize_streaming,
            info.handle[0].supports_handled_streaming,
        ],
        "models": [len(info.asr[0].models), len(voices), len(info.handle[0].models)],
        "heard": await home.listen("en"),
        "spoken": await home.speak(None),
        "in_voice": await home.speak(voice),
        "streamed": await home.stream(voice),
        "said": await home.talk("one two three"),
        "failed": await home.fail(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
