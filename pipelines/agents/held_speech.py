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
from pipelines.tts.paid import PaidSpeech, PaidSynthesis
from pipelines.tts.pipeline import SpeechPlan
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import SpeechStream

HELD_CHARACTERS = 1000  # some 70 s of speech; few answers have more


@dataclass(eq=False, repr=False)
class HeldSpeech(PaidSynthesis):
    """The synthesis of one answer. It is charged for the text that was sent, by `count_sent`.

    Its texts are not charged by themselves, and have no events: those of the session have them.
    """

    workspace_id: int
    payer: Operation
    _stack: AsyncExitStack  # ends the charges
    spoken: int = 0  # characters of all texts that were spoken
    sent: int = 0  # characters that the listener was sent
    charges: list[Charge] = field(default_factory=list)

    async def plan(
        self, request: SpeechRequest, workspace_id: int, *, early_start: bool = False
    ) -> SpeechPlan:
        return await self.pipeline.plan(request, early_start=early_start)

    @asynccontextmanager
    async def pay(
        self, workspace_id: int, operation: Operation, plan: SpeechPlan
    ) -> AsyncIterator[PaidSpeech]:
        """Holds more where the answer is longer than what is held so far."""
        units = self.characters(plan)
        missing = self.spoken + units - sum(charge.units for charge in self.charges)
        if missing > HELD_CHARACTERS:
            await self.hold(missing)
        elif missing > 0:
            try:
                await self.hold(HELD_CHARACTERS)
            except InsufficientCredit:
                await self.hold(missing)
        free = await self.billing.hold(workspace_id, "tts", 0, operation)
        yield PaidSpeech(free, self, plan)
        self.spoken += units

    async def hold(self, characters: int) -> None:
        """Raises InsufficientCredit or DatabaseUnavailable."""
        charge = await self.billing.hold(self.workspace_id, "tts", characters, self.payer)
        self.charges.append(await self._stack.enter_async_context(charge))

    def count_sent(self, characters: int) -> None:
        """Counts the characters that the listener was sent so far."""
        self.sent = left = characters
        for charge in self.charges:
            charge.progress(left)
            left -= charge.used


@dataclass(frozen=True, slots=True)
class AgentVoice:
    """The speech of an agent, and the credit for what it says."""

    stream: SpeechStream
    credit: HeldSpeech


@asynccontextmanager
async def hold_speech(
    synthesis: PaidSynthesis, workspace_id: int, payer: Operation
) -> AsyncIterator[HeldSpeech]:
    """Holds the price of an answer, and charges at the end for what was sent, also when the answer
    is interrupted; for nothing when the service fails.

    Raises InsufficientCredit or DatabaseUnavailable before the answer begins.
    """
    async with AsyncExitStack() as charges:
        held = HeldSpeech(**vars(synthesis), workspace_id=workspace_id, payer=payer, _stack=charges)
        await held.hold(HELD_CHARACTERS)
        yield held
        held.count_sent(held.spoken)  # the silence at the end of a text is sent, too
        for charge in held.charges:
            await charge.capture_delivered(charge.used)
