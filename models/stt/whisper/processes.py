"""Whisper of CTranslate2 in processes of its own, whose calls end when their callers leave.

CTranslate2 cannot end a call: the longest text of a window took 2.5 s of a core after its caller
had left. A process can be ended at any time, and another one loads the base model in 0.7 s. A fault
in the library ends such a process too, instead of the replica.
"""

import logging
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

import models
from models.errors import EngineError, EngineLost
from models.stt.whisper import worker
from models.stt.whisper.calls import Aligned, CallAbandoned, Facts, Failure, Generated
from telemetry import metrics

logger = logging.getLogger(__name__)

POLL_S = 0.1  # between two checks that a caller waits
# Most calls end within it, and cost less than the model of another process.
ABANDONED_S = 0.4
LOADING_S = 300.0  # a large model from a slow disk
END_S = 10.0

Array = NDArray[np.float32]


class WhisperProcesses:
    """The methods of `ctranslate2.models.Whisper` that the engine calls, from several threads.

    Each of `count` processes has its own copy of the weights. The second one starts when two calls
    first run at once; until it is loaded, the second call takes the process that is free first.
    """

    def __init__(self, options: Mapping[str, Any], count: int) -> None:
        """`options` are those of `ctranslate2.models.Whisper`. Raises EngineError."""
        self._idle = [WhisperProcess(options) for _ in range(count)]
        self._changed = Condition()
        self.close = weakref.finalize(self, _end_all, tuple(self._idle))
        facts = self._idle[0].load()
        self.n_mels = facts.n_mels
        self.is_multilingual = facts.is_multilingual

    def encode(self, features: Array) -> Array:
        """float32 [n, mels, frames] to float32 [n, frames / 2, width]."""
        encoded: Array = self._call("encode", features)
        return encoded

    def detect_language(self, states: Array) -> list[list[tuple[str, float]]]:
        """Language tokens and probabilities, likeliest first, for each of [n, m, width]."""
        rankings: list[list[tuple[str, float]]] = self._call("detect_language", states)
        return rankings

    def generate(
        self,
        states: Array,
        prompts: Sequence[Sequence[int]],
        *,
        is_wanted: Callable[[], bool],
        **options: Any,
    ) -> list[Generated]:
        """Texts of [n, m, width] after prompts of one length.

        Raises CallAbandoned soon after `is_wanted` is false.
        """
        texts: list[Generated] = self._call(
            "generate", states, prompts, options, is_wanted=is_wanted
        )
        return texts

    def align(
        self,
        states: Array,
        start_sequence: Sequence[int],
        texts: Sequence[Sequence[int]],
        frames: int,
        median_filter_width: int,
    ) -> list[Aligned]:
        """The times of the tokens of texts, from the decoder's attention to [n, m, width]."""
        aligned: list[Aligned] = self._call(
            "align", states, start_sequence, texts, frames, median_filter_width
        )
        return aligned

    def _call(
        self, name: str, *arguments: Any, is_wanted: Callable[[], bool] = lambda: True
    ) -> Any:
        process = self._borrow()
        try:
            return process.call(name, arguments, is_wanted)
        finally:
            with self._changed:
                self._idle.append(process)
                self._changed.notify()

    def _borrow(self) -> "WhisperProcess":
        """A process that is loaded. Waits until there is one."""
        with self._changed:
            while True:
                for process in reversed(self._idle):
                    if process.is_ready():
                        self._idle.remove(process)
                        return process
                for process in self._idle:
                    process.start()
                self._changed.wait(timeout=0.02)


class WhisperProcess:
    """One process, used by one thread at a time; it is started again after it has ended."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._program: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._is_loaded = False

    def start(self) -> None:
        """Begins to load the model, if no process does."""
        if self._program is not None:
            return
        ours, theirs = Pipe()
        root = Path(models.__file__).parents[1]
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self._connection = ours
        ours.send(self._options)

    def is_ready(self) -> bool:
        """Whether a call would not wait for the model: it is loaded, or will not be."""
        return self._connection is not None and (self._is_loaded or self._connection.poll())

    def load(self) -> Facts:
        """Waits until the model is loaded. Raises EngineError."""
        self.start()
        facts: Facts = self._receive(timeout_s=LOADING_S)
        self._is_loaded = True
        return facts

    def call(self, name: str, arguments: tuple[Any, ...], is_wanted: Callable[[], bool]) -> Any:
        """Raises CallAbandoned when no caller waits, EngineLost when the process ended, and
        EngineError for an error of the library."""
        if not self._is_loaded:
            self.load()
        assert self._connection is not None
        try:
            self._connection.send((name, arguments))
        except OSError as error:
            self._restart("lost")
            raise EngineLost("the recogniser's process ended") from error
        abandoned_at: float | None = None
        while not self._connection.poll(POLL_S):
            now = time.monotonic()
            if is_wanted():
                abandoned_at = None
            elif abandoned_at is None:
                abandoned_at = now
            elif now > abandoned_at + ABANDONED_S:
                self._restart("abandoned")
                raise CallAbandoned
        return self._receive()

    def end(self) -> None:
        """Ends the process and what it computes."""
        if self._program is not None:
            self._program.kill()
            self._program.wait(END_S)
        if self._connection is not None:
            self._connection.close()
        self._program = None
        self._connection = None
        self._is_loaded = False

    def _receive(self, timeout_s: float = 0.0) -> Any:
        assert self._connection is not None
        try:
            if not self._connection.poll(timeout_s):
                raise EOFError
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._restart("lost")
            raise EngineLost("the recogniser's process ended") from error
        if isinstance(answer, Failure):
            raise EngineError(answer.text)
        return answer

    def _restart(self, reason: str) -> None:
        metrics.whisper_processes_ended.labels(reason).inc()
        logger.info("whisper_process_ended", extra={"reason": reason})
        self.end()
        self.start()


def _end_all(processes: Sequence[WhisperProcess]) -> None:
    for process in processes:
        process.end()
