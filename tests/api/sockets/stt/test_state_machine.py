"""Any order of messages on `/ws/stt`, well-formed or not, against a model of the session."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.replaced import with_listening
from tests.api.sockets.conftest import SocketServer, serve
from tests.api.sockets.stt.client import SttClient, audio, finals, stt
from tests.pipelines.stt.listening_doubles import FakeTranscriber

MAX_FAULTS = 19  # the twentieth ends the session

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
wrong_texts = st.sampled_from(
    [
        "",
        "{",
        "[]",
        "null",
        '"start"',
        '{"type": "start", "type": "stop"}',
        '{"type": "stop", "x": NaN}',
        '{"type": "stop", "x": 1e999}',
        '{"type": "stop", "x": "\\ud800"}',
        '{"type": "sto"}',
        '{"type": null}',
        '{"TYPE": "stop"}',
        "[" * 5000,
        '{"type": "audio", "audio": "AAAA"}',
        '{"type": "audio", "audio": 5, "encoding": "linear", "sample_rate": 16000}',
        '{"type": "audio", "audio": "A", "encoding": "linear", "sample_rate": 16000}',
        '{"type": "audio", "audio": "AAAA", "encoding": "linear", "sample_rate": 1e99}',
        '{"type": "start", "config": {"sample_rate": 8001}}',
        '{"type": "start", "languages": ["tlh"]}',
        '{"type": "config", "continuous_mode": "yes"}',
        '{"type": "config"}',
        '{"type": "test", "timestamp": ["now"]}',
    ]
)


class Machine(RuleBasedStateMachine):
    """One session after another; `started`, `mode` and the count of faults are the model."""

    runner: ClassVar[asyncio.Runner]
    server: ClassVar[SocketServer]

    def __init__(self) -> None:
        super().__init__()
        self.echoes = 0
        self.connect()

    def connect(self) -> None:
        self.stack = AsyncExitStack()
        self.client: SttClient = self.run(self.stack.enter_async_context(stt(self.server)))
        self.started = self.over = False
        self.mode = "browser"
        self.faults = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def _echo(self) -> list[dict[str, Any]]:
        """Sends a test message; returns the messages before its answer."""
        self.echoes += 1
        await self.client.send({"type": "test", "message": "m", "timestamp": self.echoes})
        *before, echo = await self.client.receive_until("test_response")
        assert echo["timestamp"] == self.echoes
        assert echo["processing_mode"] == self.mode
        return before

    def check_types(self, allowed: set[str], errors: int = 0) -> list[dict[str, Any]]:
        before: list[dict[str, Any]] = self.run(self._echo())
        found = [one["type"] for one in before]
        assert found.count("error") == errors, before
        assert set(found) <= allowed | {"error", "speech_started", "transcription"}, before
        self.faults += errors
        return before

    alive = precondition(lambda self: not self.over and self.faults < MAX_FAULTS)

    @alive
    @rule(end_ms=st.integers(-(10**20), 10**20), languages=st.sampled_from([None, [], ["en"]]))
    def start(self, end_ms: int, languages: list[str] | None) -> None:
        config = {"utterance_end_ms": end_ms, "continuous_mode": True}
        self.run(
            self.client.send({"type": "start", "languages": languages, "config": config, "x": 1})
        )
        before = self.check_types({"connected"}, errors=int(self.started))
        assert self.started or before[-1]["type"] == "connected"
        self.started = True

    @alive
    @rule(loud=st.booleans(), milliseconds=st.integers(0, 800), binary=st.booleans())
    def send_mulaw(self, loud: bool, milliseconds: int, binary: bool) -> None:
        data = (b"\x9f" if loud else b"\xff") * (8 * milliseconds)
        if binary:
            self.run(self.client.socket.send(data))
        else:
            self.run(self.client.send(audio(data, "mulaw", 8000)))
        if self.started and binary:
            self.mode = "telephony"
        self.check_types(set(), errors=int(not self.started))

    @alive
    @rule(noise=st.binary(max_size=300), rate=st.sampled_from([8000, 16_000, 44_100]))
    def send_linear(self, noise: bytes, rate: int) -> None:
        self.run(self.client.send(audio(noise, "linear", rate)))
        self.check_types(set(), errors=int(not self.started))

    @alive
    @rule(languages=st.sampled_from([None, [], ["de", "en"]]))
    def change(self, languages: list[str] | None) -> None:
        self.run(self.client.send({"type": "config", "languages": languages}))
        self.check_types({"language_changed"}, errors=int(not self.started))

    @alive
    @rule(text=wrong_texts)
    def send_wrong(self, text: str) -> None:
        self.run(self.client.socket.send(text))
        self.check_types(set(), errors=1)

    @alive
    @rule(value=junk)
    def send_junk(self, value: object) -> None:
        self.run(self.client.send({"type": "audio", "audio": value}))
        self.check_types(set(), errors=1)

    @alive
    @rule()
    def stop(self) -> None:
        messages, code = self.run(self.client.stop())
        assert messages[-1]["type"] == "session_stopped", messages
        assert all(one["type"] != "error" for one in messages)
        numbers = [one["sentence_id"] for one in finals(messages)]
        assert numbers == sorted(set(numbers))
        assert code == 1000
        self.over = True

    @precondition(lambda self: self.over or self.faults == MAX_FAULTS)
    @rule()
    def connect_again(self) -> None:
        self.teardown()
        self.connect()

    @invariant()
    def only_one_session_is_held(self) -> None:
        assert len(self.server.services.infrastructure.sockets.live) <= 1

    def teardown(self) -> None:
        self.run(self._disconnect())

    async def _disconnect(self) -> None:
        self.client.socket.transport.abort()
        await self.server.until_empty()
        await self.stack.aclose()


def test_any_order_of_stt_messages_matches_the_session_model(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        services = local_services(local_settings(tmp_path))
        Machine.runner = runner
        Machine.server = runner.run(
            stack.enter_async_context(serve(with_listening(services, FakeTranscriber())))
        )
        try:
            run_state_machine_as_test(Machine, settings=MACHINE_SETTINGS)
        finally:
            runner.run(stack.aclose())
            services.infrastructure.database.close()


MACHINE_SETTINGS = settings(
    max_examples=40,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
