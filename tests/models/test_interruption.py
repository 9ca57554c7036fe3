"""Speech whose listener leaves: the run of ONNX Runtime that is under way ends."""

import threading

import onnxruntime
import pytest

from models.tts.base import SynthesisRequest
from tests.models.tts.loaded import loaded, speech
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.weights

LONGEST = "The harbour lay still, and no ship came in sight. " * 6  # the longest chunk of a text
ENGINES = ["hibari", "vits", pytest.param("kokoro", marks=pytest.mark.slow)]


class CountedOptions(onnxruntime.RunOptions):  # type: ignore[misc]
    """Says when a run was begun with it."""

    begun = threading.Event()

    def __init__(self) -> None:
        super().__init__()
        self.begun.set()


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_ends_with_its_listener_without_changing_the_next(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, info = loaded(name)
    voice = next(voice for voice in info.voices if voice.language == "en")
    short = SynthesisRequest("The river runs to the sea.", voice.key, "en")
    before = speech(engine, short)
    monkeypatch.setattr(onnxruntime, "RunOptions", CountedOptions)
    request, errors = SynthesisRequest(LONGEST, voice.key, "en"), list[BaseException]()

    def listen() -> None:
        with pytest.raises(Exception, match="terminate") as caught:
            speech(engine, request)
        errors.append(caught.value)

    CountedOptions.begun.clear()
    listener = threading.Thread(target=listen)
    listener.start()
    assert CountedOptions.begun.wait(PATIENCE_S)
    request.interruption.set()
    listener.join(PATIENCE_S)
    assert len(errors) == 1
    after = speech(engine, SynthesisRequest(short.text, voice.key, "en"))
    assert len(after) == pytest.approx(len(before), rel=0.2)
    with pytest.raises(Exception, match="terminate"):
        speech(engine, request)
