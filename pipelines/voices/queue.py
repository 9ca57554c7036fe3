"""The queue of custom voices to fit, for the processes that fit them. The row of a voice is its
job, as in `pipelines.jobs.leases`; the process with the lease publishes or fails the voice."""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from sqlmodel import Session

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.schema.voices import CustomVoicesConfig, VoiceWorkConfig
from configs.settings import Settings
from db.audit import SERVICE, audit
from db.database import Database, utc_now
from db.files import expire_these_files
from db.voices.queue import claim_voice, expect_waiting
from db.voices.voices import Voice, recordings_of, samples_of, voice_of
from db.webhooks import EventKind
from models.tts.voice_pack import pack_digest
from pipelines.billing.billing import Billing, capture_row, release_row
from pipelines.errors import NotFound
from pipelines.jobs.leases import LeasedQueue
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.voices.report import Preview
from pipelines.voices.voice_object import voice_event
from telemetry import metrics

STILL_SPOKEN = timedelta(hours=1)  # work that began earlier may use a replaced pack for so long


@dataclass(eq=False, repr=False)
class VoiceQueue(LeasedQueue[Voice]):
    """The queue of voices. A claimed voice is a copy of its row at the claim."""

    _work: VoiceWorkConfig

    of_table = Voice
    given_up = "the voice could not be made; nothing was charged, and it may be tried again"

    @classmethod
    def of(cls, settings: Settings, database: Database, encryption: Encryption) -> Self:
        """Create a queue with the store, prices and limits of the configuration."""
        billing = Billing(database, load_yaml(PlansConfig, "plans").prices, encryption.encrypt_text)
        work = load_yaml(CustomVoicesConfig, "custom_voices").work
        return cls(database, Files(settings, database, encryption), billing, work)

    async def claim(self) -> Voice | None:
        """Claims the next voice, with an estimated completion."""
        lease = secrets.token_hex(16)
        return await self._database.run(claim_voice, lease, utc_now(), self._work)

    async def expect_waiting(self) -> None:
        """Updates the estimated completion of queued voices."""
        await self._database.run(expect_waiting, utc_now(), self._work)

    async def samples(self, claimed: Voice) -> list[bytes]:
        """Read the recordings. Raises NotFound if the voice was deleted."""
        samples = await self._database.read(recordings_of, claimed)
        if not samples:
            raise NotFound("the voice was deleted")
        return [await self._files.read(claimed.workspace_id, sample.file_id) for sample in samples]

    async def checkpoint(self, claimed: Voice) -> bytes | None:
        """Read the checkpoint of the last attempt. Raises NotFound if the voice was deleted."""
        if claimed.checkpoint_file is None:
            return None
        return await self._files.read(claimed.workspace_id, claimed.checkpoint_file)

    async def replaced_pack(self, claimed: Voice, engine: str) -> bytes | None:
        """Read the pack that a version has to surpass, if `engine` speaks it. Raises NotFound."""
        voice = await self._database.get(Voice, claimed.version_of) if claimed.version_of else None
        if voice is None or voice.pack_file is None or voice.engine != engine:
            return None
        return await self._files.read(voice.workspace_id, voice.pack_file)

    async def keep_checkpoint(
        self, claimed: Voice, data: bytes, preview: Preview | None = None
    ) -> bool:
        """Replace the last checkpoint, and perhaps the preview. Returns False as `renew` does."""

        def keep(session: Session, voice: Voice, stored: dict[str, str]) -> None:
            old = [voice.checkpoint_file or "", *([voice.preview_file or ""] if preview else [])]
            expire_these_files(session, old, utc_now())
            voice.checkpoint_file = stored["checkpoint"]
            if preview is not None:
                voice.preview_file, voice.preview_at = stored["preview"], utc_now()
                voice.similarity = preview[1]

        parts = {"checkpoint": data, "preview": preview and preview[0]}
        return await self._with_files(claimed, parts, keep)

    async def publish(
        self,
        claimed: Voice,
        engine: str,
        pack: bytes,
        similarity: float,
        report: bytes | None,
        replaced_similarity: float | None = None,
    ) -> bool:
        """Make the voice ready and capture its price.

        `engine` speaks with the pack; the report is JSON. A version fails unless it is more similar
        than its voice, whose similarity with the same recordings is `replaced_similarity`, or else
        the stored one. Returns False as `renew` does; then nothing changes."""

        def publish(session: Session, voice: Voice, stored: dict[str, str]) -> None:
            first = voice_of(session, voice.workspace_id, voice.version_of or voice.id, lock=True)
            assert first is not None, "a voice is deleted with its versions"
            before = replaced_similarity or first.similarity or 0.0
            if first is not voice and similarity <= before:
                voice.report_file = stored.get("report")
                expire_these_files(session, [stored["voice"]], utc_now())
                reason = (
                    f"similarity {similarity:.3f}; the current voice has {before:.3f} and stays"
                )
                return self._fail(session, voice, "not_better", reason)
            expire_these_files(session, [first.pack_file or ""], utc_now() + STILL_SPOKEN)
            expire_these_files(session, [first.report_file or ""], utc_now())
            voice.status = "ready"
            voice.similarity = similarity
            # A version keeps the pack that it replaces, which is deleted with it.
            voice.pack_file, voice.pack_digest = first.pack_file, first.pack_digest
            first.engine = engine
            first.similarity = similarity
            first.pitch_hz = voice.pitch_hz
            first.pack_file, first.pack_digest = stored["voice"], pack_digest(pack)
            first.report_file = stored.get("report")
            session.add(first)
            self._finish(session, voice)
            cost = self._billing.cost("voice", 1)
            capture_row(session, voice, "voice", cost=cost, units=1)
            self._record(session, voice, "voice.ready")

        return await self._with_files(claimed, {"voice": pack, "report": report}, publish)

    async def fail(
        self, claimed: Voice, error: str, reason: str, report: bytes | None = None
    ) -> bool:
        """Fail the voice and release its price. Returns False as `renew` does. `error` is a code
        and `reason` a sentence, both for the caller."""

        def fail(session: Session, voice: Voice, stored: dict[str, str]) -> None:
            voice.report_file = stored.get("report")
            self._fail(session, voice, error, reason)

        done = await self._with_files(claimed, {"report": report}, fail)
        if done:
            await self._delete_expired()
        return done

    def _fail(self, session: Session, voice: Voice, error: str, reason: str) -> None:
        voice.status, voice.error, voice.reason, voice.similarity = "failed", error, reason, None
        samples = [sample.file_id for sample in samples_of(session, voice.id)]
        expire_these_files(session, samples, utc_now())
        self._finish(session, voice)
        release_row(session, voice, "voice")
        self._record(session, voice, "voice.failed")

    def _finish(self, session: Session, voice: Voice) -> None:
        now = utc_now()
        waited_s = (now - voice.created_at).total_seconds()
        metrics.voice_seconds.labels(voice.status).observe(waited_s)
        voice.finished_at = voice.estimated_completion = now
        voice.progress = 1.0
        voice.lease = voice.lease_until = None
        unfinished = [voice.checkpoint_file or "", voice.preview_file or ""]
        expire_these_files(session, unfinished, now)
        voice.checkpoint_file = voice.preview_file = voice.preview_at = None
        session.add(voice)
        session.flush()

    def _record(self, session: Session, voice: Voice, kind: EventKind) -> None:
        self._billing.add_events(session, voice.workspace_id, (voice_event(kind, voice),))
        details = {"attempts": voice.attempt, "error": voice.error}
        audit(session, voice.workspace_id, kind, SERVICE, str(voice.id), details)
