"""The processes of Whisper: what ends them, and what a call gets then."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from models.audio import Pcm
from models.errors import EngineError, EngineLost
from models.stt.base import DecodingBudget, TranscriptionRequest
from models.stt.whisper.calls import CallAbandoned
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.processes import WhisperProcesses
from models.weights.store import WeightStore
from telemetry import metrics
from tests.models.sounds import speak
from tests.patience import PATIENCE_S, block_until
from tests.processes import children, command_of

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="reads the processes of Linux")

STATES = np.zeros((1, 1500, 512), np.float32)
START = 50258  # <|startoftranscript|> of the multilingual models
END = 50257
LONGEST: dict[str, Any] = {"beam_size": 5, "max_length": 224, "suppress_tokens": [END]}
"""A text of the base model that ends only at its greatest length, after seconds."""


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> Pcm:
    return speak("Good morning. The weather is fine today.", weights)


@pytest.fixture
def load(folder: Path) -> Iterator[Callable[..., WhisperProcesses]]:
    loaded: list[WhisperProcesses] = []

    def load(count: int = 1, path: Path = folder) -> WhisperProcesses:
        options = {"model_path": str(path), "compute_type": "int8", "intra_threads": 1}
        loaded.append(WhisperProcesses(options, count))
        return loaded[-1]

    yield load
    for processes in loaded:
        processes.close()


def programs() -> set[int]:
    return set(children(os.getpid()))


def ended(reason: str) -> float:
    value: float = metrics.whisper_processes_ended.labels(reason)._value.get()
    return value


def test_a_call_is_ended_when_its_caller_has_left(load: Callable[..., WhisperProcesses]) -> None:
    processes, before = load(), ended("abandoned")
    with pytest.raises(CallAbandoned):
        processes.generate(STATES, [[START]], is_wanted=lambda: False, **LONGEST)
    assert ended("abandoned") == before + 1
    [(language, share), *_] = processes.detect_language(STATES)[0]
    assert language.startswith("<|") and 0 < share <= 1  # another process answers


def test_a_caller_who_waits_gets_the_whole_text(load: Callable[..., WhisperProcesses]) -> None:
    processes, before = load(), programs()
    [text] = processes.generate(STATES, [[START]], is_wanted=lambda: True, **LONGEST)
    assert len(text.sequences_ids[0]) > 100
    assert programs() == before


def test_a_process_that_is_killed_is_an_error_that_may_be_retried(
    load: Callable[..., WhisperProcesses],
) -> None:
    others = programs()
    processes, before = load(), ended("lost")
    [program] = programs() - others
    os.kill(program, signal.SIGKILL)
    block_until(lambda: Path(f"/proc/{program}/stat").read_text().rsplit(")")[1].split()[0] == "Z")
    with pytest.raises(EngineLost) as lost:
        processes.detect_language(STATES)
    assert lost.value.retryable
    assert ended("lost") == before + 1
    assert processes.detect_language(STATES)
    assert program not in programs()


def test_an_error_of_the_library_leaves_the_process(load: Callable[..., WhisperProcesses]) -> None:
    processes, before = load(), programs()
    with pytest.raises(EngineError) as failed:
        processes.detect_language(np.zeros((1, 1500, 7), np.float32))
    assert str(failed.value) and not isinstance(failed.value, EngineLost)
    assert processes.detect_language(STATES)
    assert programs() == before


def test_a_second_process_starts_only_for_a_second_call_at_once(
    load: Callable[..., WhisperProcesses],
) -> None:
    others = programs()
    processes = load(count=3)
    for _ in range(3):
        processes.detect_language(STATES)
    assert len(programs() - others) == 1
    with ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(processes.generate, STATES, [[START]], is_wanted=lambda: True, **LONGEST)
            for _ in range(2)
        ]
        assert all(call.result(PATIENCE_S) for call in calls)
    assert len(programs() - others) == 2


def test_weights_that_are_cut_are_named_and_leave_no_process(
    load: Callable[..., WhisperProcesses], folder: Path, tmp_path: Path
) -> None:
    others = programs()
    cut = copytree(folder, tmp_path / "cut")
    whole = (cut / "model.bin").read_bytes()
    (cut / "model.bin").unlink()
    (cut / "model.bin").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EngineError) as failed:
        load(path=cut)
    assert str(failed.value) and not isinstance(failed.value, EngineLost)
    del failed
    gc.collect()
    assert programs() == others


@pytest.mark.slow
def test_a_process_that_cannot_be_loaded_leaves_the_calls_to_the_first(
    load: Callable[..., WhisperProcesses],
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    others = programs()
    path = copytree(folder, tmp_path / "model", copy_function=os.symlink)
    processes = load(count=2, path=path)
    (path / "model.bin").unlink()
    with ThreadPoolExecutor(3) as threads:
        calls = [
            threads.submit(processes.generate, STATES, [[START]], is_wanted=lambda: True, **LONGEST)
            for _ in range(3)
        ]
        assert all(call.result(PATIENCE_S) for call in calls)
    [failed] = [record for record in caplog.records if record.msg == "whisper_process_not_loaded"]
    assert "model.bin" in str(vars(failed)["error"])
    [program] = programs() - others
    os.kill(program, signal.SIGKILL)
    with pytest.raises(EngineLost):  # the one that computes
        processes.generate(STATES, [[START]], is_wanted=lambda: True, **LONGEST)
    with pytest.raises(EngineLost, match="could not be loaded"):
        processes.detect_language(STATES)


def test_calls_are_refused_at_once_while_no_process_can_be_loaded(
    load: Callable[..., WhisperProcesses],
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("models.stt.whisper.processes.FIRST_RETRY_S", 1000.0)
    monkeypatch.setattr("models.stt.whisper.processes.RETRY_S", 3000.0)
    others = programs()
    path = copytree(folder, tmp_path / "model", copy_function=os.symlink)
    processes = load(path=path)
    (path / "model.bin").unlink()
    [program] = programs() - others
    os.kill(program, signal.SIGKILL)
    for message in ("process ended", "could not be loaded", "could not be loaded"):
        with pytest.raises(EngineLost, match=message) as lost:
            processes.detect_language(STATES)
    assert 900 < (lost.value.retry_after_s or 0.0) <= 1000
    [failed] = [record for record in caplog.records if record.msg == "whisper_process_not_loaded"]
    assert (failed.levelname, vars(failed)["failures"]) == ("ERROR", 1)
    processes._failed_at = -1000.0
    with pytest.raises(EngineLost) as lost:
        processes.detect_language(STATES)
    assert 1900 < (lost.value.retry_after_s or 0.0) <= 2000
    (path / "model.bin").symlink_to(folder / "model.bin")
    processes._failed_at = -3000.0
    assert processes.detect_language(STATES)


def test_a_caller_who_leaves_while_all_processes_compute_waits_no_longer(
    load: Callable[..., WhisperProcesses],
) -> None:
    processes = load()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(
            processes.generate, STATES, [[START]], is_wanted=lambda: True, **LONGEST
        )
        time.sleep(0.2)
        with pytest.raises(CallAbandoned):
            processes.generate(STATES, [[START]], is_wanted=lambda: False, **LONGEST)
        assert first.result(PATIENCE_S)


def test_processes_end_with_the_engine_that_uses_them(folder: Path) -> None:
    others = programs()
    options = {"model_path": str(folder), "compute_type": "int8"}
    processes = WhisperProcesses(options, 1)
    assert programs() != others
    del processes
    gc.collect()
    assert programs() == others


OWNER = """
import sys, time
import numpy as np
from models.stt.whisper.processes import WhisperProcesses

processes = WhisperProcesses({"model_path": sys.argv[1], "compute_type": "int8"}, 1)
print("loaded", flush=True)
processes.generate(
    np.zeros((1, 1500, 512), np.float32), [[50258]], is_wanted=lambda: True,
    beam_size=5, max_length=448, suppress_tokens=[50257],
)
"""


def test_processes_end_when_the_service_is_killed(folder: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "loaded\n"
        [program] = children(owner.pid)
        owner.kill()
    block_until(lambda: not command_of(program))


def test_of_a_batch_only_the_texts_that_nobody_waits_for_are_missing(
    engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32)
    left = TranscriptionRequest(noise, language="en", budget=DecodingBudget(is_wanted=lambda: True))
    generate = engine._generate

    def abandon(jobs: Any, limits: Any, temperature: Any) -> Any:
        if jobs[0].request.language == "ru":
            raise CallAbandoned
        return generate(jobs, limits, temperature)

    monkeypatch.setattr(engine, "_generate", abandon)
    # Another script, so the two are decoded apart.
    russian = TranscriptionRequest(noise, language="ru")
    transcripts = engine.transcribe([russian, left])
    assert [transcript.language for transcript in transcripts] == ["ru", "en"]
    assert transcripts[0].segments == ()


def test_others_of_a_batch_keep_their_texts_when_one_caller_leaves(
    engine: WhisperEngine, speech: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = engine._generate
    calls = list[int]()

    def cut_then_abandon(jobs: Any, limits: Any, temperature: Any) -> Any:
        calls.append(len(jobs))
        if len(calls) > 1:  # a second try of the one whose text was cut, and whose caller left
            raise CallAbandoned
        decodings = generate(jobs, limits, temperature)
        return [replace(decodings[0], complete=False), *decodings[1:]]

    monkeypatch.setattr(engine, "_generate", cut_then_abandon)
    requests = [TranscriptionRequest(speech, language="en") for _ in range(2)]
    transcripts = engine.transcribe(requests)
    assert calls[0] == 2 and len(calls) > 1
    assert transcripts[1].segments and transcripts[1].segments[0].text
