"""`antiphon talk`: a voice agent in the terminal, over the Realtime API."""

import asyncio
import base64
import json
import subprocess
import sys
from typing import Any

import click
from websockets.asyncio.client import ClientConnection

from antiphon.cli.service import ServiceClient, end, pass_service
from antiphon.cli.sound import SoundProgram, player, recorder
from antiphon.cli.speech import blocks
from antiphon.client import given
from antiphon.live import Address, opened

RATE = 24_000  # Hz, of the session in both directions
SILENCE = bytes(2 * RATE)  # a second, which ends the last turn of stdin
QUIET_S = 20.0  # after the end of stdin, a pause of this length ends the conversation


@click.command()
@click.option("-i", "--instructions", help="Instructions for the agent.")
@click.option("-v", "--voice", help="Voice name or id.")
@click.option("--raw", is_flag=True, help="Use stdin and stdout, 16-bit mono at 24 kHz.")
@pass_service
def talk(service: ServiceClient, instructions: str | None, voice: str | None, raw: bool) -> None:
    """Talk to a voice agent until Ctrl-C. Wear headphones, so that it does not hear itself.

    \b
    antiphon talk --instructions "You are a kind librarian. Be brief."
    """
    output = given(voice=voice)
    audio = {"input": {"transcription": {"model": "whisper-1"}}, **given(output=output or None)}
    if not raw:  # fails now if a program is missing, before the session opens
        recorder().close()
        player(instead="--raw writes to stdout").close()
    session = {"type": "realtime", **given(instructions=instructions), "audio": audio}
    asyncio.run(converse(service, session, raw))


async def converse(service: ServiceClient, session: dict[str, Any], raw: bool) -> None:
    address = Address(f"{service.url}/openai/v1/realtime?model=gpt-realtime", service.key, 0)
    with service.failures():
        async with opened(address) as socket:
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            speaker = Speaker(raw)
            sending = asyncio.create_task(send_microphone(socket, raw))
            try:
                while not await follow(socket, service, speaker, sending):
                    pass
            finally:
                sending.cancel()
                speaker.hush()


async def follow(
    socket: ClientConnection,
    service: ServiceClient,
    speaker: "Speaker",
    sending: asyncio.Task[None],
) -> bool:
    """Handle an event; return whether the conversation is over."""
    try:
        async with asyncio.timeout(QUIET_S if sending.done() else None):
            event = json.loads(await socket.recv())
    except TimeoutError:
        return True
    match event["type"]:
        case "response.output_audio.delta":
            await speaker.play(base64.b64decode(event["delta"]))
        case "input_audio_buffer.speech_started":
            speaker.hush()
        case "conversation.item.input_audio_transcription.completed":
            say(service, "you", event["transcript"])
        case "response.output_audio_transcript.done":
            say(service, "agent", event["transcript"])
        case "error":
            end(event["error"]["message"], 1)
        case "response.done":
            return sending.done()
    return False


def say(service: ServiceClient, who: str, text: str) -> None:
    service.report({who: text}, f"{who}: {text.strip()}")


async def send_microphone(socket: ClientConnection, raw: bool) -> None:
    async for block in blocks(raw, RATE):
        await append(socket, block)
    await append(socket, SILENCE)


async def append(socket: ClientConnection, audio: bytes) -> None:
    encoded = base64.b64encode(audio).decode()
    await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": encoded}))


class Speaker:
    """Plays through a program; an interruption ends it, and so drops its unplayed audio."""

    def __init__(self, raw: bool) -> None:
        self._raw = raw
        self._program: SoundProgram | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def play(self, audio: bytes) -> None:
        if self._raw:
            sys.stdout.buffer.write(audio)
            sys.stdout.buffer.flush()
            return
        if self._program is not None and self._process is not None:
            if self._process.returncode is not None:
                self._program.check(self._process.returncode)
                self.hush()
        if self._process is None:
            self._program = player(instead="--raw writes to stdout")
            self._process = await asyncio.create_subprocess_exec(
                *self._program.command, stdin=subprocess.PIPE, stderr=self._program.messages
            )
        assert self._process.stdin is not None
        self._process.stdin.write(audio)  # buffers: audio arrives faster than it plays

    def hush(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._program is not None:
            self._program.close()
        self._process = None
        self._program = None
