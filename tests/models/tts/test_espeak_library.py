"""espeak-ng's state is global in a process, whose first texts may come from several threads."""

import subprocess
import sys

import pytest

FIRST_TEXTS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from models.tts.espeak_ng import espeak_library

VOICES = ("de", "fr", "es", "it", "pl", "nl", "pt-br", "hi")
barrier = Barrier(len(VOICES))

def read(voice):
    barrier.wait()
    return espeak_library().phonemes("Auto", voice)

with ThreadPoolExecutor(len(VOICES)) as threads:
    together = list(threads.map(read, VOICES))
assert together == [espeak_library().phonemes("Auto", voice) for voice in VOICES], together
"""


def test_first_texts_of_several_threads_are_read_in_their_languages() -> None:
    pytest.importorskip("espeakng_loader")
    reading = subprocess.run(
        [sys.executable, "-c", FIRST_TEXTS], capture_output=True, text=True, check=False
    )
    assert reading.returncode == 0, reading.stderr
