"""Model swaps in a replica while requests run: the deployment classes, without Ray."""

import asyncio
import gc
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema.serve import ModelsArgs
from deployments.autoscaling import LEAST, LOAD
from deployments.gateway import model_index as index_module
from deployments.gateway.handles import Deployed
from deployments.gateway.model_index import ClusterReports, ModelIndex
from deployments.replicas import choice
from deployments.replicas import model as replica_module
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.tts import TTSDeployment
from models.base import ModelInfo
from models.errors import EngineLost, ModelNotLoaded
from models.llm.base import ChatMessage, GenerationRequest
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.ports import Arrival
from telemetry import metrics
from telemetry.reports import OwnReports, Report
from tests.engines import ECHO, TONE, TONE_LOW

TEXT = " ".join(f"word{number}" for number in range(500))


async def test_a_chat_answer_in_progress_completes_on_the_old_model() -> None:
    replica = ChatDeployment()
    await replica.reconfigure({"model": ECHO})
    old = weakref.ref(replica.engine())
    answer = replica.generate(GenerationRequest((ChatMessage("user", TEXT),)))
    text = (await anext(answer)).text
    await replica.reconfigure({"model": ECHO})
    assert replica.engine() is not old()
    async for delta in answer:
        text += delta.text
    assert text == TEXT
    del answer
    gc.collect()
    assert old() is None, "the old model still takes memory"


async def test_speech_in_progress_completes_on_the_old_model() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})
    speech = replica.synthesize(SynthesisRequest("some words to say", "alto", "en"))
    chunks = [await anext(speech)]
    await replica.reconfigure({"model": TONE_LOW})  # which has no voice alto
    chunks += [chunk async for chunk in speech]
    assert sum(chunk.duration_s for chunk in chunks) == pytest.approx(17 * 0.06, abs=0.1)


async def test_a_voice_model_without_weights_waits_for_them() -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "auto", "wanted": "tts/csm"})
    await replica.check_health()
    with pytest.raises(EngineLost, match="still loading"):
        await replica.describe()
    await replica.reconfigure({"model": TONE, "wanted": "tts/csm"})
    assert (await replica.describe()).id == "svc/tts-tone"
    await replica.stop_warm_up()


async def test_a_chat_model_without_weights_waits_until_it_is_deployed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[ModelInfo | None] = []
    reports = SimpleNamespace(model=None, run=asyncio.Event().wait, process=None)

    async def send() -> None:
        sent.append(reports.model)

    reports.send = send
    monkeypatch.setattr(replica_module, "cluster_reports", lambda: reports)
    replica = ChatDeployment()
    monkeypatch.setattr(choice, "is_here", lambda model: False)
    await replica.reconfigure({"model": "auto", "wanted": ECHO})
    assert [(one.config, one.is_awaited, one.is_loaded) for one in sent if one] == [
        (ECHO, True, False)
    ]
    await replica.check_health()
    with pytest.raises(EngineLost, match="still loading"):
        await replica.describe()
    monkeypatch.setattr(replica, "_report_problem", lambda problem: None)
    await replica.reconfigure({"model": ECHO, "wanted": ECHO})
    assert (await replica.describe()).id == "svc/echo" and not sent[-1].is_awaited  # type: ignore[union-attr]


def failed_swaps() -> dict[str, float]:
    """The metric of failed swaps, by model."""
    [family] = metrics.model_swap_failed.collect()
    return {sample.labels["model"]: sample.value for sample in family.samples}


async def test_a_failed_swap_keeps_the_old_model_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[str] = []

    class Reports(ClusterReports):
        def __init__(self) -> None:
            OwnReports.__init__(self)

        async def run(self) -> None:
            pass

        async def send(self) -> None:
            sent.append(self.take().problem)

    monkeypatch.setattr(replica_module, "cluster_reports", Reports)
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})
    await replica.reconfigure({"model": "tts/nothing"})
    assert (await replica.describe()).id == "svc/tts-tone"
    assert failed_swaps() == {"tts/nothing": 1}
    [record] = [one for one in caplog.records if one.getMessage() == "model_swap_failed"]
    assert record.reason == sent[-1] and record.exc_info is None  # type: ignore[attr-defined]
    await replica.reconfigure({"model": TONE_LOW})
    assert (await replica.describe()).id == "svc/tts-tone-low"
    assert failed_swaps() == {TONE_LOW: 0}
    first, failed, last = sent
    assert (first, last) == ("", "")
    assert failed.startswith("tts/nothing cannot be loaded: no configuration 'tts/nothing'; in tts")


async def test_a_swap_that_fails_in_a_library_is_logged_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})

    def fail(*_: object) -> None:
        raise RuntimeError("line one\nline two")

    monkeypatch.setattr(replica_module, "load_model", fail)
    await replica.reconfigure({"model": TONE_LOW})
    [record] = [one for one in caplog.records if one.getMessage() == "model_swap_failed"]
    reason: str = record.reason  # type: ignore[attr-defined]
    assert reason == f"{TONE_LOW} cannot be loaded: line one line two"
    assert record.exc_info is not None and record.exc_info[0] is RuntimeError


@pytest.mark.parametrize(
    ("user_config", "sentence"),
    [
        ({"model": "tts/nothing"}, "tts/nothing cannot be loaded: no configuration 'tts/nothing'"),
        ({"modle": TONE}, "its user_config cannot be loaded: model: Field required; modle: "),
        ({"model": ECHO}, f"{ECHO} cannot be loaded: "),
    ],
)
async def test_a_first_model_that_cannot_load_is_an_error_of_one_sentence(
    user_config: dict[str, str], sentence: str
) -> None:
    replica = TTSDeployment()
    with pytest.raises(ModelNotLoaded) as caught:
        await replica.reconfigure(user_config)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)
    with pytest.raises(EngineLost):
        await replica.describe()


async def test_a_first_model_that_cannot_load_is_reported_by_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, sent = ModelIndex(ModelsArgs(chat=("Chat",))), list[ModelInfo]()

    class Reports:
        model: ModelInfo

        async def run(self) -> None: ...

        async def send(self) -> None:
            sent.append(self.model)
            await index.report(Report("Chat", "a", len(sent), {}), self.model)

    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(replica_module, "cluster_reports", Reports)
    monkeypatch.setattr(replica_module, "load_model", fail)
    loading = ModelInfo("svc/echo", "chat", "echo", "x", 0, is_loaded=False)
    await index.report(Report("Chat", "before", 1, {}), loading)
    with pytest.raises(ModelNotLoaded):
        await ChatDeployment().reconfigure({"model": ECHO})
    [info] = sent
    reason = f"{ECHO} cannot be loaded: no memory"
    assert (info.id, info.is_loaded, info.problem) == ("svc/echo", False, reason)
    assert (await index.deployed()).infos == {"Chat": sent[0]}
    loaded = replace(sent[0], context_tokens=9, is_loaded=True)
    await index.report(Report("Chat", "b", 1, {}), loaded)
    await index.report(Report("Chat", "c", 1, {}), sent[0])  # another replica begins
    assert (await index.deployed()).infos == {"Chat": loaded}


async def test_weights_with_wrong_bytes_are_named_with_the_command_that_repairs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's own error is "Failed to load model from file: ..."."""
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path))
    store = WeightStore(tmp_path)
    folder = store.artefact_path("smollm2-135m-q4")
    folder.mkdir(parents=True)
    for name, file in store.artefact("smollm2-135m-q4").files.items():
        with (folder / name).open("wb") as weights:
            weights.truncate(file.size_bytes)
    with pytest.raises(ModelNotLoaded) as caught:
        await ChatDeployment().reconfigure({"model": "llm/smollm2"})
    assert str(caught.value).startswith("llm/smollm2 cannot be loaded: 'model.gguf' of 'smollm2")
    assert "run `python -m models.weights fetch --repair`" in str(caught.value)


async def test_reported_problems_and_models_are_listed_by_deployment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Problems while their replicas report, and models also when those were scaled to zero."""
    clock = [1000.0]
    monkeypatch.setattr(index_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    args = ModelsArgs(tts=("TTSFast",))
    index = ModelIndex(args)
    info = ModelInfo("svc/tts-tone", "tts", "tone", "x", 0)
    for replica, sequence, problem in [("a", 1, "why"), ("b", 1, ""), ("c", 1, "gone")]:
        await index.report(Report("TTSFast", replica, sequence, {}, problem=problem))
    assert await index.deployed() == Deployed(args, {"TTSFast": "gone"}, {}, {})
    await index.report(Report("TTSFast", "c", 2, {}), info)
    await index.report(Report("TTSFast", "c", 1, {}), replace(info, id="older"))
    assert await index.deployed() == Deployed(args, {"TTSFast": "why"}, {}, {"TTSFast": info})
    clock[0] += index_module.FORGET_S + 1
    assert await index.deployed() == Deployed(args, {}, {}, {"TTSFast": info})
    coming = Arrival(model="svc/large", got_bytes=3, size_bytes=10)
    await index.expect("Chat", coming)
    assert (await index.deployed()).arrivals == {"Chat": coming}
    assert metrics.model_missing_bytes.labels("svc/large")._value.get() == 7
    await index.expect("Chat", None)
    assert (await index.deployed()).arrivals == {}


async def test_models_that_sleep_when_the_index_starts_are_asked_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Handle:
        def __init__(self, name: str) -> None:
            self.deployment_name, self.describe = name, self

        async def remote(self) -> None:
            asked.append(self.deployment_name)
            if self.deployment_name == "broken":
                raise EngineLost("it does not load")

    monkeypatch.setattr(index_module, "UNKNOWN_S", 0.05)
    handles: list[Any] = [Handle(name) for name in ("known", "broken", "asleep")]
    index = ModelIndex(ModelsArgs(tts=("known", "broken", "asleep")), *handles)
    for _ in range(2):
        await index.deployed()
    info = ModelInfo("svc/tts-tone", "tts", "tone", "x", 0)
    await index.report(Report("known", "a", 1, {}), info)
    await asyncio.sleep(0.2)
    assert asked == ["broken", "asleep"]


async def test_a_replica_used_since_its_report_is_not_idle() -> None:
    replica = ChatDeployment()
    assert await replica.record_autoscaling_stats() == {LOAD: 0}
    await replica.reconfigure({"model": ECHO})
    assert await replica.record_autoscaling_stats() == {LOAD: 0}
    async for _ in replica.generate(GenerationRequest((ChatMessage("user", "hi"),))):
        pass
    assert await replica.record_autoscaling_stats() == {LOAD: LEAST}
    assert await replica.record_autoscaling_stats() == {LOAD: 0}
