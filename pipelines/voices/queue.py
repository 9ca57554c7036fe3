"""The queue of voices to make, as the processes that make them use it.

The row of a voice is its job. A process claims it under a lease, renews the lease while it works,
and publishes or fails the voice; each is one transaction with the ledger, the webhook event and the
audit log. When a process dies, its lease expires, and another attempt resumes from the last
checkpoint. Every method raises DatabaseUnavailable, and those that use files StorageUnavailable.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from sqlmodel import Session

from configs.load import load_yaml
from configs.schema.custom_voices import CustomVoicesConfig, VoiceWorkConfig
from configs.schema.platform import PlansConfig
from configs.settings import Settings
from db.audit import SERVICE, audit
from db.billing import ledger
from db.database import Database, utc_now
from db.files import expire_these_files, keep_file
from db.voices.queue import (
    NO_ATTEMPT_LEFT,
    claim_voice,
    count_free,
    delete_failed_voices,
    expect_waiting,
    extend_holds,
    held_leases,
    hopeless_voice,
    hopeless_voices,
    leased_voice,
    voice_under,
)
from db.voices.voices import Voice, samples_of
from db.webhooks import NewEvent
from models.tts.voice_pack import pack_digest
from pipelines.billing.billing import Billing
from pipelines.errors import StorageUnavailable
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.voices.voice_object import failed_event, ready_event
from telemetry import metrics

logger = logging.getLogger(__name__)

HOLD = timedelta(days=7)  # of the price; extended until the voice is finished
HOLD_LEFT = timedelta(days=6)  # a hold with less left is extended
UNPUBLISHED_S = 3600.0  # until files expire that no voice refers to yet
GIVEN_UP = "the voice could not be made; nothing was charged, and it may be tried again"


@dataclass(frozen=True, slots=True)
class ClaimedVoice:
    """A voice under a lease, and what an attempt needs to know of it."""

    id: UUID
    workspace_id: int
    lease: str
    attempt: int  # from 1
    language: str  # ISO 639-1 code of the samples
    gender: str  # male, female or neutral
    pitch_hz: float | None
    sample_files: tuple[str, ...]  # ids of the recordings as they were sent
    checkpoint_file: str | None  # of the attempt before
    progress: float = 0.0  # when this was read, 0 to 1
    british: bool = False  # accent of English


@dataclass(frozen=True, slots=True)
class QueueState:
    """Numbers of voices, of all workspaces."""

    held: int  # being made
    free: int  # waiting


@dataclass(frozen=True, slots=True)
class MadeVoice:
    """A finished voice."""

    engine: str  # name of the one that it is made for
    pack: bytes  # as models.tts.voice_pack writes it
    similarity: float  # cosine with held-out samples
    report: bytes | None = None  # JSON


class VoiceQueue:
    """In the fair order of db.voices.fair_order."""

    def __init__(
        self, database: Database, files: Files, billing: Billing, work: VoiceWorkConfig
    ) -> None:
        self._database = database
        self._files = files
        self._billing = billing
        self._work = work

    @classmethod
    def of(cls, settings: Settings, database: Database, encryption: Encryption) -> Self:
        """With the store, the prices and the limits of the configuration."""
        billing = Billing(database, load_yaml(PlansConfig, "plans").prices, encryption.encrypt_text)
        work = load_yaml(CustomVoicesConfig, "custom_voices").work
        return cls(database, Files(settings, database, encryption), billing, work)

    async def claim(self) -> ClaimedVoice | None:
        """The next voice, under a new lease; None when none waits."""
        now, lease = utc_now(), secrets.token_hex(16)
        return await self._database.run(_claim, lease, now, self._work)

    async def state(self) -> QueueState:
        """The size of the queue."""
        return await self._database.read(_state, utc_now(), self._work.most_attempts)

    async def held(self) -> set[tuple[UUID, str]]:
        """Voices that are being made, with their leases."""
        return await self._database.read(held_leases, utc_now())

    async def claimed(
        self, voice_id: UUID, lease: str, *, unexpired: bool = False
    ) -> ClaimedVoice | None:
        """The result of `claim`, by its id and lease; None where `renew` would be False.

        If `unexpired`, also None when the lease has expired.
        """
        return await self._database.read(_claimed, voice_id, lease, unexpired)

    async def expect_waiting(self) -> None:
        """Updates the estimated completion of voices that wait."""
        await self._database.run(_expect_waiting, utc_now(), self._work)

    async def renew(
        self,
        claimed: ClaimedVoice,
        progress: float | None = None,
        remaining_s: float | None = None,
    ) -> bool:
        """Renews the lease, and stores the progress. False: the lease is lost, stop.

        The voice was deleted or finished, or claimed by another process.
        """
        until = utc_now() + timedelta(seconds=self._work.lease_s)
        return await self._database.run(_renew, claimed, until, progress, remaining_s)

    async def give_back(self, claimed: ClaimedVoice, *, failed: bool = False) -> None:
        """Releases the lease before the voice is made, so that it can be claimed at once.

        Counts as an attempt only if it `failed`.
        """
        await self._database.run(_give_back, claimed, failed)

    async def samples(self, claimed: ClaimedVoice) -> list[bytes]:
        """The recordings. Raises NotFound when the voice was deleted."""
        return [
            await self._files.read(claimed.workspace_id, file_id)
            for file_id in claimed.sample_files
        ]

    async def checkpoint(self, claimed: ClaimedVoice) -> bytes | None:
        """The state of the attempt before. Raises NotFound when the voice was deleted."""
        if claimed.checkpoint_file is None:
            return None
        return await self._files.read(claimed.workspace_id, claimed.checkpoint_file)

    async def keep_checkpoint(self, claimed: ClaimedVoice, data: bytes) -> bool:
        """Replaces the last checkpoint. False as `renew`."""
        return await self._with_files(claimed, {"checkpoint": data}, _keep_checkpoint)

    async def publish(self, claimed: ClaimedVoice, made: MadeVoice) -> bool:
        """Makes the voice ready and captures its price. False as `renew`; nothing changes then."""
        parts = {"voice": made.pack}
        if made.report is not None:
            parts["report"] = made.report
        digest = pack_digest(made.pack)

        def publish(session: Session, voice: Voice, stored: dict[str, str]) -> None:
            voice.status = "ready"
            voice.engine, voice.similarity = made.engine, made.similarity
            voice.pack_file, voice.pack_digest = stored["voice"], digest
            voice.report_file = stored.get("report")
            self._finish(session, voice)
            cost = self._billing.cost("voice", 1)
            charged = ledger.capture(session, voice.workspace_id, voice.operation, "voice", cost, 1)
            self._record(session, voice, ready_event(voice), "voice.ready")
            metrics.charged_micro_usd.labels("voice").inc(charged.charged)

        return await self._with_files(claimed, parts, publish)

    async def fail(
        self, claimed: ClaimedVoice, error: str, reason: str, report: bytes | None = None
    ) -> bool:
        """Fails the voice and releases its price. False as `renew`.

        `error` is a code and `reason` a sentence, both for the caller.
        """
        parts = {} if report is None else {"report": report}

        def fail(session: Session, voice: Voice, stored: dict[str, str]) -> None:
            voice.report_file = stored.get("report")
            self._fail(session, voice, error, reason)

        done = await self._with_files(claimed, parts, fail)
        if done:
            await self._delete_expired()
        return done

    async def fail_hopeless(self) -> int:
        """Fails voices that no attempt could make; how many."""
        now = utc_now()
        before = now - timedelta(hours=self._work.give_up_after_hours)
        found = await self._database.read(hopeless_voices, now, before, self._work.most_attempts)
        failed = 0
        for workspace_id, voice_id in found:
            failed += await self._database.run(self._fail_hopeless, workspace_id, voice_id, before)
        return failed

    async def keep_holds(self) -> int:
        """Extends credit holds of unfinished voices; how many were about to expire."""
        now = utc_now()
        return await self._database.run(extend_holds, now + HOLD, now + HOLD_LEFT)

    async def delete_failed(self, finished_before: datetime) -> int:
        """Deletes rows of voices that failed long ago, in batches; how many."""
        return await self._database.run(delete_failed_voices, finished_before)

    def _fail_hopeless(
        self, session: Session, workspace_id: int, voice_id: UUID, before: datetime
    ) -> bool:
        attempts = self._work.most_attempts
        voice = hopeless_voice(session, workspace_id, voice_id, utc_now(), before, attempts)
        if voice is None:
            return False
        self._fail(session, voice, NO_ATTEMPT_LEFT, GIVEN_UP)
        return True

    def _fail(self, session: Session, voice: Voice, error: str, reason: str) -> None:
        voice.status, voice.error, voice.reason = "failed", error, reason
        samples = [sample.file_id for sample in samples_of(session, voice.id)]
        expire_these_files(session, samples, utc_now())
        self._finish(session, voice)
        ledger.release(session, voice.workspace_id, voice.operation, "voice")
        self._record(session, voice, failed_event(voice), "voice.failed")

    def _finish(self, session: Session, voice: Voice) -> None:
        now = utc_now()
        waited_s = (now - voice.created_at).total_seconds()
        metrics.voice_seconds.labels(voice.status).observe(waited_s)
        voice.finished_at = voice.estimated_completion = now
        voice.progress = 1.0
        voice.lease = voice.lease_until = None
        if voice.checkpoint_file is not None:
            expire_these_files(session, [voice.checkpoint_file], now)
            voice.checkpoint_file = None
        session.add(voice)
        session.flush()

    def _record(self, session: Session, voice: Voice, event: NewEvent, action: str) -> None:
        self._billing.add_events(session, voice.workspace_id, (event,))
        details = {"attempts": voice.attempt}
        audit(session, voice.workspace_id, action, SERVICE, str(voice.id), details)

    async def _with_files(
        self,
        claimed: ClaimedVoice,
        parts: dict[str, bytes],
        change: Callable[[Session, Voice, dict[str, str]], None],
    ) -> bool:
        """Stores `parts` by kind, and calls `change` with their ids, if the lease still holds.

        Files are stored before the transaction, and expire if it never commits.
        """
        if not await self.renew(claimed):
            return False  # its workspace may be deleted, and then files cannot be stored
        stored: dict[str, str] = {}
        for kind, data in parts.items():
            media_type = "application/json" if kind == "report" else "application/octet-stream"
            stored[kind] = await self._files.put(
                claimed.workspace_id, kind, media_type, data, UNPUBLISHED_S
            )

        def work(session: Session) -> bool:
            voice = leased_voice(session, claimed.workspace_id, claimed.id, claimed.lease)
            if voice is None:
                expire_these_files(session, list(stored.values()), utc_now())
                return False
            for file_id in stored.values():
                if not keep_file(session, claimed.workspace_id, file_id, None):
                    raise StorageUnavailable("the files of the voice were deleted too early")
            change(session, voice, stored)
            return True

        done = await self._database.run(work)
        if not done:
            await self._delete_expired()
        return done

    async def _delete_expired(self) -> None:
        try:
            await self._files.delete_expired()
        except StorageUnavailable:  # housekeeping tries again
            logger.warning("files_of_a_voice_left")


def _claim(
    session: Session, lease: str, now: datetime, config: VoiceWorkConfig
) -> ClaimedVoice | None:
    until = now + timedelta(seconds=config.lease_s)
    voice = claim_voice(session, lease, now, until, config.most_attempts)
    if voice is None:
        return None
    left = 1.0 - voice.progress  # of an earlier attempt
    voice.estimated_completion = now + timedelta(seconds=left * config.seconds_per_voice)
    session.add(voice)
    _expect_waiting(session, now, config)
    return _as_claimed(session, voice, lease)


def _expect_waiting(session: Session, now: datetime, work: VoiceWorkConfig) -> None:
    expect_waiting(session, now, work.most_attempts, work.seconds_per_voice, work.at_once)


def _as_claimed(session: Session, voice: Voice, lease: str) -> ClaimedVoice:
    return ClaimedVoice(
        id=voice.id,
        workspace_id=voice.workspace_id,
        lease=lease,
        attempt=voice.attempt,
        language=voice.language,
        gender=voice.gender,
        pitch_hz=voice.pitch_hz,
        sample_files=tuple(sample.file_id for sample in samples_of(session, voice.id)),
        checkpoint_file=voice.checkpoint_file,
        progress=voice.progress,
        british=voice.accent == "British",
    )


def _state(session: Session, now: datetime, most_attempts: int) -> QueueState:
    return QueueState(len(held_leases(session, now)), count_free(session, now, most_attempts))


def _claimed(session: Session, voice_id: UUID, lease: str, unexpired: bool) -> ClaimedVoice | None:
    voice = voice_under(session, voice_id, lease)
    if voice is None or (unexpired and (voice.lease_until or utc_now()) <= utc_now()):
        return None
    return _as_claimed(session, voice, lease)


def _leased(session: Session, claimed: ClaimedVoice) -> Voice | None:
    return leased_voice(session, claimed.workspace_id, claimed.id, claimed.lease)


def _renew(
    session: Session,
    claimed: ClaimedVoice,
    until: datetime,
    progress: float | None,
    remaining_s: float | None,
) -> bool:
    voice = _leased(session, claimed)
    if voice is None:
        return False
    voice.lease_until = until
    if progress is not None:
        voice.progress = min(1.0, max(voice.progress, progress))
    if remaining_s is not None:
        voice.estimated_completion = utc_now() + timedelta(seconds=remaining_s)
    session.add(voice)
    return True


def _give_back(session: Session, claimed: ClaimedVoice, failed: bool) -> None:
    voice = _leased(session, claimed)
    if voice is not None:
        voice.lease = voice.lease_until = None
        if not failed:
            voice.attempt -= 1
        session.add(voice)


def _keep_checkpoint(session: Session, voice: Voice, stored: dict[str, str]) -> None:
    if voice.checkpoint_file is not None:
        expire_these_files(session, [voice.checkpoint_file], utc_now())
    voice.checkpoint_file = stored["checkpoint"]
    session.add(voice)
