"""The machine of the user's turns: events in, effects out, by a table of sequences."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import pytest

from api.openai.realtime.items import to_wire
from api.openai.realtime.server_events import ServerEvent
from api.openai.realtime.turns import (
    DISPLAY_MS,
    JUDGING_MS,
    CommitItem,
    Effect,
    SetTranscript,
    TurnOptions,
    UserTurns,
)
from models.errors import EngineOverloaded
from pipelines.stt.events import (
    EagerTranscript,
    FailedUtterance,
    LiveEvent,
    LiveSpeechStarted,
    LiveSpeechStopped,
    LiveTranscript,
    SpeechResumed,
)

Step: TypeAlias = Callable[[UserTurns], list[Effect] | None]
ECHOED = "the weather will be fine"  # what the agent has just said


def live(event: LiveEvent) -> Step:
    return lambda turns: turns.accept(event, ECHOED)


def transcript(text: str, number: int = 1, *, final: bool, cut: bool = False) -> Step:
    return live(
        LiveTranscript(number, final, text, "en", 0.9, (), 0.0, 1.0, 0.0, cut=cut, audio_s=1.2)
    )


def final(text: str, number: int = 1, *, cut: bool = False) -> Step:
    return transcript(text, number, final=True, cut=cut)


def interim(text: str) -> Step:
    return transcript(text, final=False)


def clear(first: int, end: int) -> Step:
    return lambda turns: turns.clear(range(first, end))


def eager(text: str) -> Step:
    return live(EagerTranscript(text))


def began(response_id: str, *, is_automatic: bool = False) -> Step:
    return lambda turns: turns.response_began(response_id, is_automatic=is_automatic)


def ended(response_id: str) -> Step:
    return lambda turns: turns.response_ended(response_id)


START = live(LiveSpeechStarted(at_s=1.3, starts_s=1.0))
STOP = live(LiveSpeechStopped(at_s=2.0))
RESUME = live(SpeechResumed())
FAIL = live(FailedUtterance(1, EngineOverloaded("busy")))
FAIL_PART = live(FailedUtterance(1, EngineOverloaded("busy"), cut=True))
COMMIT: Step = UserTurns.commit
CLOSE: Step = UserTurns.close


def idle(turns: UserTurns) -> list[Effect]:
    return turns.idle(0, 5000)


def summary(effect: Effect) -> str:
    """Its name, and the words, ids and times in it."""
    match effect:
        case ServerEvent():
            values: list[Any] = [value for value in vars(effect).values() if value is not None]
        case CommitItem(item):
            assert to_wire(item)["content"] == [{"type": "input_audio", "transcript": None}]
            values = [item.id]
        case SetTranscript(item, text, audio_ms):
            values = [item.id, text, audio_ms]
        case _:
            values = [getattr(effect, name) for name in effect.__slots__]
    return " ".join([type(effect).__name__, *map(str, values)])


def effects_of(turns: UserTurns, steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        yield from map(summary, step(turns) or ())


def machine(**options: Any) -> UserTurns:
    numbers = count(1)
    turns = UserTurns(make_id=lambda prefix: f"{prefix}{next(numbers)}", clock=lambda: 0.0)
    turns.options = TurnOptions(**options)
    return turns


FAILED = (
    "TranscriptionFailed item1 0 {'type': 'server_error', 'code': 'overloaded', 'message': 'busy'}"
)
STARTED = "UserSpeechStarted item1 1000"
COMMITTED = ["UserSpeechStopped item1 2000", "CommitItem item1"]


@pytest.mark.parametrize(
    ("steps", "effects"),
    [
        pytest.param(
            [START, STOP, final("")],
            [STARTED, *COMMITTED, "SetTranscript item1  1000"],
            id="a turn without words is not answered",
        ),
        pytest.param(
            [START, eager("Hello."), STOP, final("Hello.")],
            [
                STARTED,
                "BeginDraft item1 Hello.",
                *COMMITTED,
                "SetTranscript item1 Hello. 1000",
                "Respond item1",
            ],
            id="the draft of the final text is the answer",
        ),
        pytest.param(
            [START, eager("Hello."), RESUME, eager("Hello you."), STOP, final("Hello Hugh.")],
            [
                STARTED,
                "BeginDraft item1 Hello.",
                "DropDraft item1",
                "BeginDraft item1 Hello you.",
                *COMMITTED,
                "SetTranscript item1 Hello Hugh. 1000",
                "Respond None",
                "DropDraft item1",
            ],
            id="drafts of other texts are dropped",
        ),
        pytest.param(
            [START, final("I would", cut=True), STOP, final("like tea.")],
            [STARTED, *COMMITTED, "SetTranscript item1 I would like tea. 2000", "Respond None"],
            id="the parts of a long turn are one text",
        ),
        pytest.param(
            [
                START,
                interim("I would like"),
                interim("I would like to"),
                interim("I would like to go"),
            ],
            [STARTED, "ReadAhead I would", "ReadAhead I would like to"],
            id="the model reads ahead two words at a time",
        ),
        pytest.param(
            [began("r1"), START, STOP, final("The weather will be fine.")],
            [],
            id="an echo leaves the agent speaking",
        ),
        pytest.param(
            [began("r1"), START, STOP, final("Wait, stop.")],
            [
                STARTED,
                "Interrupt r1",
                *COMMITTED,
                "SetTranscript item1 Wait, stop. 1000",
                "Respond None",
            ],
            id="words interrupt the agent at their end",
        ),
        pytest.param(
            [began("r1"), START, ended("r1"), STOP, final("Thank you.")],
            [STARTED, *COMMITTED, "SetTranscript item1 Thank you. 1000", "Respond None"],
            id="a turn is announced late when the agent has ended meanwhile",
        ),
        pytest.param(
            [START, began("r1"), eager("Hello."), STOP, final("Hello.")],
            [STARTED, *COMMITTED, "SetTranscript item1 Hello. 1000", "Respond None"],
            id="a response that the client asks for is not interrupted by the turn before it",
        ),
        pytest.param(
            [START, began("r1", is_automatic=True), interim("And what?")],
            [STARTED, "Interrupt r1"],
            id="a response to an earlier turn is interrupted",
        ),
        pytest.param(
            [START, eager("Hello."), STOP, FAIL],
            [
                STARTED,
                "BeginDraft item1 Hello.",
                *COMMITTED,
                "DropDraft item1",
                FAILED,
            ],
            id="a turn without a text has an error",
        ),
        pytest.param(
            [START, FAIL_PART, STOP, final("like tea.")],
            [STARTED, *COMMITTED, "Forgive 1.2", FAILED],
            id="a long turn without the text of a part has an error",
        ),
        pytest.param(
            [START, STOP, FAIL_PART, START, final("like tea."), STOP, final("No.")],
            [
                STARTED,
                *COMMITTED,
                "UserSpeechStarted item2 1000",
                "Forgive 1.2",
                FAILED,
                "UserSpeechStopped item2 2000",
                "CommitItem item2",
                "SetTranscript item2 No. 1000",
                "Respond None",
            ],
            id="the rest of a turn that failed is not the text of the next one",
        ),
        pytest.param(
            [START, eager("Hello."), clear(1, 2), STOP, final("Hello.")],
            [STARTED, "BeginDraft item1 Hello.", "DropDraft item1"],
            id="a turn that the client clears is forgotten",
        ),
        pytest.param(
            [START, clear(1, 3), START, STOP, final("I would", cut=True), final("Tea.", 3)],
            [
                STARTED,
                "UserSpeechStarted item2 1000",
                "UserSpeechStopped item2 2000",
                "CommitItem item2",
                "SetTranscript item2 Tea. 1000",
                "Respond None",
            ],
            id="a part of a turn that the client has cleared may come late",
        ),
        pytest.param(
            [START, eager("A."), STOP, START, eager("B."), CLOSE],
            [
                STARTED,
                "BeginDraft item1 A.",
                *COMMITTED,
                "UserSpeechStarted item2 1000",
                "BeginDraft item2 B.",
                "DropDraft item1",
                "DropDraft item2",
            ],
            id="a session that ends drops all drafts",
        ),
        pytest.param(
            [idle, began("r1"), idle],
            ["IdleTimeoutTriggered item1 0 5000", "CommitItem item1", "Respond None"],
            id="a silent user is answered unless the agent speaks",
        ),
        pytest.param([START, idle], [STARTED], id="a user who speaks is not idle"),
    ],
)
def test_effects_of_a_sequence(steps: Sequence[Step], effects: list[str]) -> None:
    assert [*effects_of(machine(), steps)] == effects


@pytest.mark.parametrize(
    ("options", "steps", "effects"),
    [
        pytest.param(
            {"interrupts": False},
            [began("r1"), START, interim("Wait, stop.")],
            [STARTED],
            id="no turn interrupts",
        ),
        pytest.param(
            {"creates_response": False, "from_s": 10.0},
            [START, interim("I would like tea"), eager("Tea."), STOP, final("Tea.")],
            [
                "UserSpeechStarted item1 11000",
                "UserSpeechStopped item1 12000",
                "CommitItem item1",
                "SetTranscript item1 Tea. 1000",
            ],
            id="the client asks for responses, and audio came before",
        ),
        pytest.param(
            {"creates_response": False, "transcribes": True},
            [START, interim("I would like"), interim("I would like"), STOP, final("I would like.")],
            [
                STARTED,
                "TranscriptionDelta item1 0 I would",
                *COMMITTED,
                "SetTranscript item1 I would like. 1000",
                "TranscriptionDelta item1 0  like.",
                "TranscriptionCompleted item1 0 I would like. {'type': 'duration', 'seconds': 1.0}",
            ],
            id="transcripts grow by words that two interims agree on",
        ),
        pytest.param(
            {"creates_response": False, "is_manual": True},
            [final("I would", cut=True), COMMIT, final("like", cut=True), final("tea."), COMMIT],
            ["CommitItem item1", "SetTranscript item1 I would like tea. 3000", "CommitItem item2"],
            id="a long turn that the client commits has the parts from before",
        ),
        pytest.param(
            {"creates_response": False, "is_manual": True},
            [COMMIT, final("No."), final("I would", 2, cut=True), COMMIT, final("like.", 3)],
            [
                "CommitItem item1",
                "SetTranscript item1 No. 1000",
                "CommitItem item2",
                "SetTranscript item2 I would like. 2000",
            ],
            id="a second turn has the parts from before its commit",
        ),
        pytest.param(
            {"creates_response": False, "is_manual": True},
            [FAIL_PART, COMMIT, final("tea.")],
            ["CommitItem item1", "Forgive 1.2", FAILED],
            id="a committed turn without the text of a part has an error",
        ),
    ],
)
def test_effects_with_options(
    options: dict[str, Any], steps: Sequence[Step], effects: list[str]
) -> None:
    assert [*effects_of(machine(**options), steps)] == effects


@pytest.mark.parametrize("is_failed", [False, True])
@pytest.mark.parametrize(
    "order",
    [
        "part clear commit",
        "part commit clear",
        "commit part clear",
        "commit clear part",
        "clear part commit",
        "clear commit part",
    ],
)
def test_parts_that_the_client_clears_are_in_no_turn(order: str, is_failed: bool) -> None:
    """Whenever they come: the recogniser may be behind the messages of the client."""
    failure = live(FailedUtterance(2, EngineOverloaded("busy"), cut=True))
    steps = {
        "part": failure if is_failed else final("I would", 2, cut=True),
        "clear": clear(2, 4),
        "commit": COMMIT,
    }
    turns = machine(is_manual=True, creates_response=False)
    earlier = [*effects_of(turns, [COMMIT, final("Is", 0, cut=True), final("it?")])]
    assert earlier == ["CommitItem item1", "SetTranscript item1 Is it? 2000"]
    later = [*effects_of(turns, [*(steps[name] for name in order.split()), final("Tea.", 4)])]
    assert later == ["CommitItem item2", "SetTranscript item2 Tea. 1000"]


def test_a_turn_keeps_its_parts_when_the_client_clears_later_speech() -> None:
    turns = machine(is_manual=True, creates_response=False)
    steps = [COMMIT, final("Is", 1, cut=True), clear(3, 4), final("it?", 2)]
    effects = [*effects_of(turns, steps)]
    assert effects == ["CommitItem item1", "SetTranscript item1 Is it? 2000"]


def test_a_response_is_held_while_an_interruption_is_uncertain() -> None:
    turns = machine()
    began("r1")(turns)
    assert not turns.holds_response
    START(turns)
    assert turns.holds_response and turns.interim_ms() == JUDGING_MS
    assert turns.expected_sounds("en") is not None
    STOP(turns)
    assert turns.holds_response and not turns.is_settled
    final("Mm-hmm.")(turns)
    assert not turns.holds_response and turns.is_settled
    ended("r1")(turns)
    START(turns)
    assert not turns.holds_response and turns.interim_ms() == DISPLAY_MS
    assert turns.is_open and turns.expected_sounds("en") is None
