"""A model is swapped in a replica while requests run: the classes by themselves, without Ray."""

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


async def test_an_answer_that_runs_ends_with_the_model_that_began_it() -> None:
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


async def test_speech_that_runs_ends_with_the_model_that_began_it() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "tts/tone"})
    speech = replica.synthesize(SynthesisRequest("some words to say", "alto", "en"))
    chunks = [await anext(speech)]
    await replica.reconfigure({"model": "tts/tone_low"})  # has no such voice
    chunks += [chunk async for chunk in speech]
    assert sum(chunk.duration_s for chunk in chunks) == pytest.approx(17 * 0.06, abs=0.1)


async def test_the_old_model_stays_when_the_new_one_cannot_load() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "tts/tone"})
    await replica.reconfigure({"model": "tts/nothing"})
    assert (await replica.describe()).id == "svc/tts-tone"


async def test_the_first_model_must_load() -> None:
    replica = TTSDeployment()
    with pytest.raises(FileNotFoundError, match="nothing"):
        await replica.reconfigure({"model": "tts/nothing"})
    with pytest.raises(ValidationError):
        await replica.reconfigure({"modle": "tts/tone"})
    with pytest.raises(EngineLost):
        await replica.describe()
