"""What engines get to speak, recorded while a test runs."""

import pytest

from models.tts.base import SynthesisRequest
from pipelines.ports import TTSModel
from pipelines.text.chunking import TextChunk
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan


def record_engine_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of all calls from now on, in their order."""
    texts: list[str] = []
    call = SpeechPipeline._call

    def record(
        self: SpeechPipeline, plan: SpeechPlan, chunk: TextChunk, deadline_s: float = 0.0
    ) -> tuple[TTSModel, SynthesisRequest]:
        model, request = call(self, plan, chunk, deadline_s)
        texts.append(request.text)
        return model, request

    monkeypatch.setattr(SpeechPipeline, "_call", record)
    return texts
