"""The program of a process that computes with one Whisper model of CTranslate2.

`models/stt/whisper/processes.py` starts it with the descriptor of its end of a socket pair. It
answers one call at a time, and ends when the socket is closed.
"""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from models.memory import give_back
from models.stt.whisper.calls import Aligned, Facts, Failure, Generated

IDLE_S = 5.0  # time without a call after which freed memory is returned to the system


def encode(model: ctranslate2.models.Whisper, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Encodes float32 [n, mels, frames] to float32 [n, frames / 2, width]."""
    states = model.encode(_view(features), to_cpu=True)
    return np.array(states, dtype=np.float32)


def detect_language(
    model: ctranslate2.models.Whisper, states: NDArray[np.float32]
) -> list[list[tuple[str, float]]]:
    rankings: list[list[tuple[str, float]]] = model.detect_language(_view(states))
    return rankings


def generate(
    model: ctranslate2.models.Whisper,
    states: NDArray[np.float32],
    prompts: Sequence[Sequence[int]],
    options: Mapping[str, Any],
) -> list[Generated]:
    results = model.generate(_view(states), prompts, **options)
    return [
        Generated(result.sequences_ids, result.scores, result.no_speech_prob) for result in results
    ]


def align(
    model: ctranslate2.models.Whisper,
    states: NDArray[np.float32],
    start_sequence: Sequence[int],
    texts: Sequence[Sequence[int]],
    frames: int,
    median_filter_width: int,
) -> list[Aligned]:
    results = model.align(
        _view(states), start_sequence, texts, frames, median_filter_width=median_filter_width
    )
    return [Aligned(result.text_token_probs, result.alignments) for result in results]


CALLS: dict[str, Callable[..., Any]] = {
    call.__name__: call for call in (encode, detect_language, generate, align)
}


def _view(values: NDArray[np.float32]) -> ctranslate2.StorageView:
    return ctranslate2.StorageView.from_array(np.ascontiguousarray(values))


def main(descriptor: int) -> None:
    """Loads the model of the first message, and answers calls until the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the service, which closes the socket
    with Connection(descriptor) as connection:
        try:
            model = ctranslate2.models.Whisper(**connection.recv())
            connection.send(Facts(model.n_mels, model.is_multilingual))
            while True:
                if not connection.poll(IDLE_S):
                    give_back()  # 25 MB after a file, as measured
                name, arguments = connection.recv()
                connection.send(_answer(model, name, arguments))
        except (EOFError, ConnectionError):
            return  # the service ended
        except Exception as error:  # any error, such as a file that is cut, or a lack of memory
            connection.send(Failure(str(error) or type(error).__name__))


def _answer(model: ctranslate2.models.Whisper, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return CALLS[name](model, *arguments)
    except Exception as error:  # the model can still answer the next call
        return Failure(str(error) or type(error).__name__)


if __name__ == "__main__":
    main(int(sys.argv[1]))
