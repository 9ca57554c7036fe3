"""The program of a process that computes with one Whisper model of CTranslate2.
`models/stt/whisper/processes.py` starts it with the descriptor of its end of a socket pair. It
answers one call at a time, and ends when the socket is closed."""

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


def _states(states: ctranslate2.StorageView) -> NDArray[np.float32]:
    return np.array(states, dtype=np.float32)


def _generated(results: Sequence[Any]) -> list[Generated]:
    return [
        Generated(result.sequences_ids, result.scores, result.no_speech_prob) for result in results
    ]


def _aligned(results: Sequence[Any]) -> list[Aligned]:
    return [Aligned(result.text_token_probs, result.alignments) for result in results]


# Methods of the model that may be called; each value makes their result picklable.
CALLS: dict[str, Callable[[Any], Any]] = {
    "encode": _states,
    "detect_language": list,
    "generate": _generated,
    "align": _aligned,
}


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
                connection.send(_answer(model, *connection.recv()))
        except (EOFError, ConnectionError):
            return  # the service ended
        except Exception as error:  # any error, such as a file that is cut, or a lack of memory
            connection.send(Failure(str(error) or type(error).__name__))


def _answer(
    model: ctranslate2.models.Whisper,
    name: str,
    values: NDArray[np.float32],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> Any:
    try:
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(values))
        return CALLS[name](getattr(model, name)(view, *arguments, **options))
    except Exception as error:  # the model can still answer the next call
        return Failure(str(error) or type(error).__name__)


if __name__ == "__main__":
    main(int(sys.argv[1]))
