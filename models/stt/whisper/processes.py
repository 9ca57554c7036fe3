"""Runs CTranslate2's Whisper in child processes, so that a call ends when its callers have left.

CTranslate2 cannot cancel a call: the longest text of a window took 2.5 s of a core after its caller
had left. A process can be killed, and a new one loads the base model in 0.7 s. A crash of the
library also ends only that process, not the replica.
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

POLL_S = 0.1  # time between two checks whether a caller still waits
ABANDONED_S = 0.4  # how long an abandoned call may run: most end, which is cheaper than a restart
LOOK_S = 0.02  # time between two checks for a free process
LOADING_S = 300.0  # time for the first process, which may load a large model from a slow disk
RETRY_S = 30.0  # time without new processes after one could not load the model
FIRST_RETRY_S = 1.0  # the same while no process is left; doubled at each failure up to RETRY_S
END_S = 10.0  # most time for a killed process to end

Array = NDArray[np.float32]


class WhisperProcesses:
    """A pool of processes with the methods of `ctranslate2.models.Whisper` that the engine calls.
    It is thread-safe. Each process has its own copy of the weights. The first one starts at once,
    others when a call finds none free; the call then takes the first process that becomes free."""

    def __init__(self, options: Mapping[str, Any], count: int) -> None:
        """`options` are the arguments of `ctranslate2.models.Whisper`. Raises EngineError."""
        self._all = tuple(WhisperProcess(options) for _ in range(count))
        self._idle = list(self._all)
        self._changed = Condition()
        self._failures = 0  # loads in a row that failed
        self._problem = ""  # problem of the last failed load
        self._failed_at = 0.0  # time (time.monotonic) of the last failed load
        self.close = weakref.finalize(self, _end_all, self._all)
        facts = self._all[0].load()
        self.n_mels = facts.n_mels
        self.is_multilingual = facts.is_multilingual

    def encode(self, features: Array) -> Array:
        """Encodes float32 [n, mels, frames] to float32 [n, frames / 2, width]."""
        encoded: Array = self._call("encode", features, to_cpu=True)
        return encoded

    def detect_language(self, states: Array) -> list[list[tuple[str, float]]]:
        """Ranks language tokens by probability, likeliest first, for states [n, m, width]."""
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
        """Decodes states [n, m, width] after prompts, all of one length. Raises CallAbandoned soon
        after `is_wanted` returns False."""
        texts: list[Generated]
        texts = self._call("generate", states, prompts, is_wanted=is_wanted, **options)
        return texts

    def align(
        self,
        states: Array,
        start_sequence: Sequence[int],
        texts: Sequence[Sequence[int]],
        frames: int,
        *,
        median_filter_width: int,
    ) -> list[Aligned]:
        """Aligns the tokens of texts by the decoder's attention to states [n, m, width]."""
        aligned: list[Aligned] = self._call(
            "align",
            states,
            start_sequence,
            texts,
            frames,
            median_filter_width=median_filter_width,
        )
        return aligned

    def _call(
        self,
        name: str,
        values: Array,
        *arguments: Any,
        is_wanted: Callable[[], bool] = lambda: True,
        **options: Any,
    ) -> Any:
        process = self._borrow(is_wanted)
        try:
            return process.call((name, values, arguments, options), is_wanted)
        finally:
            with self._changed:
                self._idle.append(process)
                self._changed.notify()

    def _borrow(self, is_wanted: Callable[[], bool]) -> "WhisperProcess":
        """Waits for a loaded process that is free. Raises CallAbandoned or EngineError."""
        with self._changed:
            while True:
                for process in reversed(self._idle):
                    if process.facts is not None:
                        self._idle.remove(process)
                        return process
                self._load_another()
                if not is_wanted():
                    raise CallAbandoned
                self._changed.wait(timeout=LOOK_S)

    def _load_another(self) -> None:
        """Loads one more process, without waiting for it. Raises EngineLost, with the time until
        another try, while none is left and none can be loaded."""
        loading = next((process for process in self._idle if process.is_started), None)
        try:
            if loading is not None:
                loading.receive_facts(timeout_s=0.0)
                self._failures = 0 if loading.facts is not None else self._failures
            elif self._idle and self._pause_s() <= 0:
                self._idle[0].start()
        except (EngineError, OSError) as error:
            self._failures += 1
            self._failed_at = time.monotonic()
            self._problem = str(error)
            level = logging.WARNING if self._is_some_left else logging.ERROR
            fields = {"error": self._problem, "failures": self._failures}
            logger.log(level, "whisper_process_not_loaded", extra=fields)
        pause_s = self._pause_s()
        if pause_s > 0 and not self._is_some_left:
            message = f"the recogniser could not be loaded: {self._problem}"
            raise EngineLost(message).with_retry_after(pause_s)

    @property
    def _is_some_left(self) -> bool:
        """Whether a process exists; one that is in use may be restarting just now."""
        return any(process.is_started or process not in self._idle for process in self._all)

    def _pause_s(self) -> float:
        """Seconds until another process may be started."""
        if not self._failures:
            return 0.0
        doubled_s = FIRST_RETRY_S * 2 ** min(self._failures - 1, 10)
        pause_s = RETRY_S if self._is_some_left else min(doubled_s, RETRY_S)
        return self._failed_at + pause_s - time.monotonic()


class WhisperProcess:
    """One process, used by one thread at a time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._program: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self.facts: Facts | None = None  # properties of the model; None until it is loaded

    @property
    def is_started(self) -> bool:
        return self._connection is not None

    def start(self) -> None:
        """Begins to load the model. Raises OSError."""
        ours, theirs = Pipe()
        root = Path(models.__file__).parents[1]
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._program = subprocess.Popen(
                # -P ignores the current folder, whose modules may have the same names.
                [sys.executable, "-P", "-m", worker.__name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self._connection = ours
        ours.send(self._options)

    def load(self) -> Facts:
        """Starts the process and waits until the model is loaded. Raises EngineError."""
        self.start()
        self.receive_facts(LOADING_S)
        if self.facts is None:
            self.end()
            raise EngineError(f"the model was not loaded within {LOADING_S:.0f} s")
        return self.facts

    def receive_facts(self, timeout_s: float) -> None:
        """Sets `facts` if the model has been loaded. Raises EngineError if it cannot be."""
        assert self._connection is not None
        try:
            answer = self._connection.recv() if self._connection.poll(timeout_s) else None
        except (EOFError, OSError) as error:
            answer = Failure(f"its process ended ({type(error).__name__})")
        if isinstance(answer, Failure):
            self.end()
            raise EngineError(answer.text)
        self.facts = answer

    def call(self, message: tuple[Any, ...], is_wanted: Callable[[], bool]) -> Any:
        """Calls a method of the model. Raises CallAbandoned if no caller waits, EngineLost if the
        process has ended, or EngineError for an error of the library."""
        assert self._connection is not None
        try:
            self._connection.send(message)
            self._wait(is_wanted)
            answer = self._connection.recv()
        except BaseException as error:  # the next call would read the answer that was not read
            self._restart("abandoned" if isinstance(error, CallAbandoned) else "lost")
            if isinstance(error, EOFError | OSError):
                raise EngineLost("the recogniser's process ended") from error
            raise
        if isinstance(answer, Failure):
            raise EngineError(answer.text)
        return answer

    def _wait(self, is_wanted: Callable[[], bool]) -> None:
        """Waits for the answer. Raises CallAbandoned."""
        assert self._connection is not None
        abandoned_at: float | None = None
        while not self._connection.poll(POLL_S):
            now = time.monotonic()
            if is_wanted():
                abandoned_at = None
            elif abandoned_at is None:
                abandoned_at = now
            elif now > abandoned_at + ABANDONED_S:
                raise CallAbandoned

    def _restart(self, reason: str) -> None:
        metrics.whisper_processes_ended.labels(reason).inc()
        logger.info("whisper_process_ended", extra={"reason": reason})
        self.end()
        try:
            self.start()
        except OSError as error:  # the next call tries again
            logger.warning("whisper_process_not_loaded", extra={"error": str(error)})

    def end(self) -> None:
        """Kills the process and waits for its end."""
        self.kill()
        if self._program is not None:
            self._program.wait(END_S)
        if self._connection is not None:
            self._connection.close()
        self._program = None
        self._connection = None
        self.facts = None

    def kill(self) -> None:
        """Kills the process without waiting for its end."""
        if self._program is not None:
            self._program.kill()


def _end_all(processes: Sequence[WhisperProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.end()
