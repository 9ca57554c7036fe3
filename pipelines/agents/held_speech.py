"""The price of an answer's speech, held before the answer begins.

A hold for each sentence would let an answer begin that cannot be spoken to its end, and wait for
the database between the first clause and its sound.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from pipelines.billing.billing import Charge
from pipelines.billing.operation import Operation
from pipelines.errors import InsufficientCredit
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import ContextVoice
from pipelines.tts.shaping import SpokenChunk

HELD_CHARACTERS = 1000  # some 70 s of speech; few answers have more


@dataclass(eq=False, repr=False)
class HeldSpeech:
    """The synthesis of one answer. It is charged for the text that was sent, by `count_sent`.

    There are no events of its texts: those of the session have them.
    """

    _synthesis: PaidSynthesis
    _workspace_id: int
    payer: Operation
    _stack: AsyncExitStack  # of the charges
    made: int = 0  # characters, of all texts that were spoken
    sent: int = 0
    _units: int = 0  # of the text that is spoken
    charges: list[Charge] = field(default_factory=list)

    @property
    def pipeline(self) -> SpeechPipeline:
        return self._synthesis.pipeline

    async def plan(
        self, request: SpeechRequest, workspace_id: int, *, early_start: bool = False
    ) -> SpeechPlan:
        return await self.pipeline.plan(request, early_start=early_start)

    def characters(self, plan: SpeechPlan) -> int:
        return self._synthesis.characters(plan)

    @asynccontextmanager
    async def pay(
        self, workspace_id: int, operation: Operation, plan: SpeechPlan
    ) -> AsyncIterator["HeldSpeech"]:
        """Holds more where the answer is longer than what is held."""
        self._units = self.characters(plan)
        missing = self.made + self._units - sum(charge.units for charge in self.charges)
        if missing > HELD_CHARACTERS:
            await self.hold(missing)
        elif missing > 0:
            try:
                await self.hold(HELD_CHARACTERS)
            except InsufficientCredit:
                await self.hold(missing)
        yield self

    async def count(self, chunk: SpokenChunk) -> None:
        """Does nothing: the pace of the playback decides what is sent."""

    def take(self, chunk: SpokenChunk) -> None:
        """Does nothing either."""

    async def complete(self) -> None:
        self.made += self._units

    async def hold(self, characters: int) -> None:
        """Raises InsufficientCredit or DatabaseUnavailable."""
        charge = await self._synthesis.billing.hold(
            self._workspace_id, "tts", characters, self.payer
        )
        self.charges.append(await self._stack.enter_async_context(charge))

    def count_sent(self, characters: int) -> None:
        """The listener has been sent so many of the characters."""
        self.sent = left = characters
        for charge in self.charges:
            charge.used = min(left, charge.units)
            left -= charge.used


@dataclass(frozen=True, slots=True)
class AgentVoice:
    """A voice, and the credit for what it says."""

    voice: ContextVoice
    credit: HeldSpeech


@asynccontextmanager
async def hold_speech(
    synthesis: PaidSynthesis, workspace_id: int, payer: Operation
) -> AsyncIterator[HeldSpeech]:
    """Around one answer. What it was sent is charged at the end, also when it is interrupted;
    nothing when the service fails.

    Raises InsufficientCredit or DatabaseUnavailable before the answer begins.
    """
    async with AsyncExitStack() as charges:
        held = HeldSpeech(synthesis, workspace_id, payer, charges)
        await held.hold(HELD_CHARACTERS)
        yield held
        held.count_sent(held.made)  # with the silence at the end of a text
        for charge in held.charges:
            await charge.capture_delivered(charge.used)
