"""Holds the price of an answer's speech before the answer begins.

With a hold for each sentence, an answer could begin that the credit does not cover to its end, and
the first clause would wait for the database."""

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

HELD_CHARACTERS = 1000  # about 70 s of speech, which few answers exceed


@dataclass(eq=False, repr=False)
class HeldSpeech(PaidSynthesis):
    """The synthesis of one answer, of which the text counted by `set_sent` is charged. The texts
    of the answer have no charges and webhook events of their own: the session has them."""

    workspace_id: int
    payer: Operation
    _stack: AsyncExitStack  # closes the charges
    spoken: int = 0  # characters of all texts that were synthesised
    sent: int = 0  # characters whose speech was sent
    charges: list[Charge] = field(default_factory=list)

    async def plan(
        self, request: SpeechRequest, workspace_id: int, *, early_start: bool = False
    ) -> SpeechPlan:
        return await self.pipeline.plan(request, early_start=early_start)

    @asynccontextmanager
    async def pay(
        self, workspace_id: int, operation: Operation, plan: SpeechPlan
    ) -> AsyncIterator[PaidSpeech]:
        """Holds more credit if the text goes beyond what is held so far."""
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
        """Holds the price of more characters. Raises InsufficientCredit or DatabaseUnavailable."""
        charge = await self.billing.hold(self.workspace_id, "tts", characters, self.payer)
        self.charges.append(await self._stack.enter_async_context(charge))

    def set_sent(self, characters: int) -> None:
        """Sets the number of characters whose speech was sent so far."""
        self.sent = characters
        left = characters
        for charge in self.charges:
            charge.progress(left)
            left -= charge.used


@dataclass(frozen=True, slots=True)
class AgentVoice:
    """The speech of an agent, and the credit that pays for it."""

    stream: SpeechStream
    credit: HeldSpeech


@asynccontextmanager
async def hold_speech(
    synthesis: PaidSynthesis, workspace_id: int, payer: Operation
) -> AsyncIterator[HeldSpeech]:
    """Holds the price of an answer, and charges at the end for what was sent, also if interrupted,
    but not if the service failed. Raises InsufficientCredit or DatabaseUnavailable."""
    async with AsyncExitStack() as charges:
        held = HeldSpeech(**vars(synthesis), workspace_id=workspace_id, payer=payer, _stack=charges)
        await held.hold(HELD_CHARACTERS)
        yield held
        held.set_sent(held.spoken)  # the silence at the end of a text is sent, too
        for charge in held.charges:
            await charge.capture_delivered(charge.used)
