"""Makes one voice, as a driver that does no work of its own but deciding.

`ask` gives trials, whoever runs them tells the outcomes, and so on until `ask` gives none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from configs.cloning_schema import FitConfig
from models.speaker.base import SpeakerEncoder
from pipelines.cloning.trials import Outcome, Report, Target, Trial


@dataclass(frozen=True, slots=True)
class FittedVoice:
    """A voice that is good enough."""

    pack: bytes  # as models.tts.voice_pack writes it
    similarity: float  # of unseen sentences with recordings that were kept out of the fit
    report: Report


@dataclass(frozen=True, slots=True)
class FailedFit:
    """A voice that is not, or recordings that cannot be used."""

    code: str
    reason: str  # for the caller, with what was reached
    report: Report


class Fit:
    """Deterministic for a seed, whatever the order of the outcomes of one `ask`."""

    target: Target  # for `Trials`

    @classmethod
    def begin(
        cls,
        recordings: Sequence[bytes],
        language: str,
        gender: str,
        config: FitConfig,
        encoder: SpeakerEncoder,
        seed: int,
    ) -> "Fit":
        """Decodes and listens; blocking, some seconds. Raises InvalidAudio."""
        raise NotImplementedError

    @classmethod
    def resume(
        cls,
        recordings: Sequence[bytes],
        language: str,
        gender: str,
        config: FitConfig,
        encoder: SpeakerEncoder,
        seed: int,
        state: bytes,
    ) -> "Fit":
        """Goes on where `state` was taken; one that cannot be read begins anew."""
        raise NotImplementedError

    @property
    def progress(self) -> float:
        """0 to 1."""
        raise NotImplementedError

    def ask(self) -> list[Trial]:
        """The next trials, in any order and on any worker; none when all is done."""
        raise NotImplementedError

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """One for each trial that was asked for, in any order."""
        raise NotImplementedError

    def state(self) -> bytes:
        """A checkpoint for `resume`, under a megabyte; between `tell` and `ask`."""
        raise NotImplementedError

    def result(self) -> FittedVoice | FailedFit:
        """After `ask` gave none."""
        raise NotImplementedError
