"""Model swaps in a replica while requests run: the deployment classes, without Ray."""

import gc
import weakref

import pytest
from pydantic import ValidationError

from deployments.replicas.chat import ChatDeployment
from deployments.replicas.tts import TTSDeployment
from models.errors import EngineLost
from models.llm.base import ChatMessage, GenerationRequest
from models.tts.base import SynthesisRequest

TEXT = " ".join(f"word{number}" for number in range(500))


async def test_a_chat_answer_in_progress_completes_on_the_old_model() -> None:
    replica = ChatDeployment()
    await replica.reconfigure({"model": "llm/echo"})
    old = weakref.ref(replica.engine())
    answer = replica.generate(GenerationRequest((ChatMessage("user", TEXT),)))
    text = (await anext(answer)).text
    await replica.reconfigure({"model": "llm/echo"})
    assert replica.engine() is not old()
    async for delta in answer:
        text += delta.text
    assert text == TEXT
    del answer
    gc.collect()
    assert old() is None, "the old model still takes memory"


async def test_speech_in_progress_completes_on_the_old_model() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "tts/tone"})
    speech = replica.synthesize(SynthesisRequest("some words to say", "alto", "en"))
    chunks = [await anext(speech)]
    await replica.reconfigure({"model": "tts/tone_low"})  # which has no voice alto
    chunks += [chunk async for chunk in speech]
    assert sum(chunk.duration_s for chunk in chunks) == pytest.approx(17 * 0.06, abs=0.1)


async def test_a_failed_swap_keeps_the_old_model() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "tts/tone"})
    await replica.reconfigure({"model": "tts/nothing"})
    assert (await replica.describe()).id == "svc/tts-tone"


async def test_a_first_model_that_cannot_load_is_an_error() -> None:
    replica = TTSDeployment()
    with pytest.raises(FileNotFoundError, match="nothing"):
        await replica.reconfigure({"model": "tts/nothing"})
    with pytest.raises(ValidationError):
        await replica.reconfigure({"modle": "tts/tone"})
    with pytest.raises(EngineLost):
        await replica.describe()
