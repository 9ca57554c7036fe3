"""Messages in any order, invalid ones too, against a model of the protocol."""

import asyncio
import json
import tempfile
from collections import deque
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.api.sockets.client import TtsClient
from tests.api.sockets.conftest import SocketServer, serve_folder

T = TypeVar("T")

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", None])
TEXTS = st.sampled_from(["Hi.", "Two. Three.", "", " \n", "...", "नमस्ते", "\U0001f600"])
LIMIT = 50_000
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
FIELDS = st.sampled_from(
    ["context_id", "voice_id", "audio_config", "pitch", "speaking_rate", "stability", "text"]
)


class _Running:
    """One loop and one server for all examples of the test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._folder = tempfile.TemporaryDirectory()
        self.server: SocketServer = self.run(
            self._stack.enter_async_context(serve_folder(Path(self._folder.name)))
        )
        # The state machine may send hundreds of invalid messages in a moment.
        sockets = self.server.services.infrastructure.sockets
        sockets.limits = sockets.limits.model_copy(
            update={"faults": 1_000_000, "messages_per_s": 1e9}
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, 20))

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._loop.close()
        self._folder.cleanup()


class _Model:
    """The expected state of one context."""

    def __init__(self) -> None:
        self.buffer = 0  # characters
        self.completed = 0  # `flush_completed` events expected


class TtsMachine(RuleBasedStateMachine):
    """Each rule sends one message and checks the server's answer."""

    running: _Running

    def __init__(self) -> None:
        super().__init__()
        self.contexts: dict[str, _Model] = {}
        self.ever_made = False
        self.over = False
        self.unread: deque[dict[str, Any]] = deque()

    @initialize()
    def connects(self) -> None:
        server = self.running.server
        self.stack = AsyncExitStack()
        self.client: TtsClient = self.run(self.stack.enter_async_context(server.tts()))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.running.run(work)

    def send(self, name: str, body: dict[str, Any]) -> None:
        kept = {key: value for key, value in body.items() if value is not None}
        self.run(self.client.send(name, **kept))

    def receive(self) -> dict[str, Any]:
        """The next event that answers a message; speech in between is counted."""
        while True:
            event = self.unread.popleft() if self.unread else self.run(self.client.receive())
            if "audio_chunk" in event:
                assert event["audio_chunk"]["context_id"] in self.contexts
                assert event["audio_chunk"]["audioContent"]
            elif "flush_completed" in event:
                model = self.contexts[event["flush_completed"]["context_id"]]
                model.completed -= 1
                assert model.completed >= 0
            else:
                return event

    def expect_error(self, part: str, context_id: str | None) -> None:
        error = self.receive()["error"]
        assert part in error["message"] and error["context_id"] == context_id, (error, part)

    def addressed(self, name: str | None) -> str | None:
        """The open context that a message addresses, or None after its error was checked."""
        if name is None and len(self.contexts) == 1:
            return next(iter(self.contexts))
        if name in self.contexts:
            return name
        if not self.ever_made:
            self.expect_error("create_context must come first", None)
        elif name is None:
            self.expect_error("context_id required", None)
        else:
            event = self.receive()["error"]  # its id when it was closed, null when never created
            assert event["message"].startswith("no context has")
            assert event["context_id"] in (name, None)
        return None

    @precondition(lambda self: not self.over)
    @rule(name=NAMES, rate=NUMBERS, pitch=NUMBERS, stability=NUMBERS, boost=st.booleans())
    def creates(
        self, name: str | None, rate: float, pitch: float, stability: float, boost: bool
    ) -> None:
        body = {"speaking_rate": rate, "pitch": pitch, "stability": stability}
        voice = self.client.voice_id
        more = {"context_id": name, "voice_id": voice, "boost_volume": boost}
        self.send("create_context", body | more)
        if name in self.contexts:
            self.expect_error("open already", name)
        elif len(self.contexts) == 5:
            self.expect_error("at most 5", None)
        else:
            made = self.receive()["context_created"]["context_id"]
            assert made == (name or made) and made not in self.contexts
            self.contexts[made] = _Model()
            self.ever_made = True

    @precondition(lambda self: not self.over)
    @rule(name=NAMES, text=TEXTS | st.integers(1, LIMIT + 1).map(lambda count: " " * count))
    def sends(self, name: str | None, text: str) -> None:
        self.send("send_text", {"context_id": name, "text": text})
        context_id = self.addressed(name)
        if context_id is None:
            return
        model = self.contexts[context_id]
        if model.buffer + len(text) > LIMIT:
            self.expect_error("text_buffer exceeded 50000 character limit", context_id)
        else:
            model.buffer += len(text)

    @precondition(lambda self: not self.over)
    @rule(name=NAMES)
    def flushes(self, name: str | None) -> None:
        self.send("flush_context", {"context_id": name})
        context_id = self.addressed(name)
        if context_id is None:
            return
        model = self.contexts[context_id]
        model.buffer = 0
        model.completed += 1
        while model.completed:  # one at a time, so that none is refused
            event = self.run(self.client.receive())
            if "error" in event:  # characters that this voice does not support
                assert event["error"]["context_id"] == context_id
                model.completed -= 1
            else:
                self.unread.append(event)
                self.check_speech()

    def check_speech(self) -> None:
        event = self.unread.popleft()
        assert "audio_chunk" in event or "flush_completed" in event, event
        if "flush_completed" in event:
            self.contexts[event["flush_completed"]["context_id"]].completed -= 1

    @precondition(lambda self: not self.over)
    @rule(name=NAMES)
    def closes(self, name: str | None) -> None:
        self.send("close_context", {"context_id": name})
        context_id = self.addressed(name)
        if context_id is None:
            return
        while "context_closed" not in (event := self.receive()):
            assert event["error"]["context_id"] == context_id
        assert event == {"context_closed": {"context_id": context_id}}
        del self.contexts[context_id]
        if not self.contexts:
            assert self.run(self.client.receive_rest()) == ([], 1000)
            self.over = True

    @precondition(lambda self: self.over)
    @rule()
    def connects_again(self) -> None:
        self.run(self.stack.aclose())
        self.ever_made = self.over = False
        self.connects()

    @precondition(lambda self: not self.over)
    @rule(
        frame=st.text(max_size=30)
        | st.binary(max_size=30)
        | JUNK.map(json.dumps)
        | JUNK.map(lambda junk: json.dumps({"create_context": junk}))
    )
    def sends_junk(self, frame: str | bytes) -> None:
        try:
            frame.encode() if isinstance(frame, str) else frame
        except UnicodeEncodeError:
            return
        self.run(self.client.socket.send(frame))
        assert self.receive()["error"]["message"]

    @precondition(lambda self: not self.over)
    @rule(field=FIELDS, value=JUNK, name=st.sampled_from(["send_text", "create_context"]))
    def sends_a_wrong_field(self, field: str, value: Any, name: str) -> None:
        body = {"context_id": "never made", "voice_id": "never heard", "text": 5} | {field: value}
        self.run(self.client.socket.send(json.dumps({name: body})))
        is_text = isinstance(value, str) and "\0" not in value
        if name == "send_text" and field == "text" and is_text:
            self.addressed("never made")
        else:
            assert self.receive()["error"]["message"]

    @invariant()
    def server_still_listens(self) -> None:
        assert self.running.server.listener.serving

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.run(self.running.server.until_empty())


def test_any_order_of_tts_messages_matches_the_protocol_model() -> None:
    running = TtsMachine.running = _Running()
    try:
        machine: Any = TtsMachine.TestCase
        machine.settings = settings(
            max_examples=30,
            stateful_step_count=25,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        machine("runTest").runTest()
    finally:
        running.close()
