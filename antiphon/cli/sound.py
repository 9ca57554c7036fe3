"""Programs of the machine that play and record sound, and the errors that they report."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from typing import IO

import click

from antiphon.cli.service import end

# Programs that play and record 16-bit mono, with their arguments; the first one installed is used.
# ffplay comes last, because only the others fail if there is no sound device.
PLAYERS = {
    "aplay": "-q -t raw -f S16_LE -r 24000 -c 1",
    "paplay": "--raw --format=s16le --rate=24000 --channels=1",
    "play": "-q -t raw -r 24000 -e signed -b 16 -c 1 -",
    "ffplay": "-loglevel error -nodisp -autoexit -f s16le -ar 24000 -ch_layout mono -i -",
}
RECORDERS = {
    "arecord": "-q -t raw -f S16_LE -r {rate} -c 1",
    "parecord": "--raw --format=s16le --rate={rate} --channels=1",
    "rec": "-q -t raw -r {rate} -e signed -b 16 -c 1 -",
}
# ffplay ends with status 0 when it has no device to play on.
NO_DEVICE = "Failed to open file"


class SoundProgram:
    """The first installed program of a list; its messages are kept in case it fails."""

    def __init__(self, choices: dict[str, str], purpose: str, instead: str) -> None:
        """`purpose` ("play") and `instead` ("-o writes a file") complete the error messages."""
        self.name = next((name for name in choices if shutil.which(name)), "")
        if not self.name:
            names = ", ".join(choices)
            raise click.UsageError(f"to {purpose}, install one of {names}; {instead}")
        self.command = [self.name, *choices[self.name].split()]
        self.messages = tempfile.TemporaryFile()
        self._purpose = purpose
        self._instead = instead

    def close(self) -> None:
        self.messages.close()

    def check(self, status: int) -> None:
        """End the command with a sentence if the program ended because it failed."""
        self.messages.seek(0)
        lines = self.messages.read().decode(errors="replace").strip().splitlines()
        if status == 0 and not any(line.startswith(NO_DEVICE) for line in lines):
            return
        reason = lines[-1].strip() if lines else f"it ended with status {status}"
        end(f"{self.name} cannot {self._purpose}: {reason}; {self._instead}", 1)


def player(instead: str) -> SoundProgram:
    """Find the program that plays 16-bit mono of 24 kHz."""
    return SoundProgram(PLAYERS, "play", instead)


def recorder(rate: int = 16_000) -> SoundProgram:
    """Find the program that records 16-bit mono at `rate` Hz."""
    choices = {name: arguments.format(rate=rate) for name, arguments in RECORDERS.items()}
    return SoundProgram(choices, "record", "--raw reads stdin")


@contextmanager
def player_input() -> Iterator[IO[bytes]]:
    """Open the input of a player; at the end of the block, wait until everything is played."""
    with closing(player(instead="-o writes a file")) as program:
        process = subprocess.Popen(program.command, stdin=subprocess.PIPE, stderr=program.messages)
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # the player ended first: its status says why
                yield process.stdin
            with suppress(BrokenPipeError):
                process.stdin.close()
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        program.check(status)


async def recorded_blocks(size: int, rate: int) -> AsyncIterator[bytes]:
    """Yield 16-bit mono samples of a recorder, `size` bytes each, at `rate` Hz."""
    with closing(recorder(rate)) as program:
        process = await asyncio.create_subprocess_exec(
            *program.command, stdout=subprocess.PIPE, stderr=program.messages
        )
        assert process.stdout is not None
        try:
            while block := await process.stdout.read(size):
                yield block
            program.check(await process.wait())
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
