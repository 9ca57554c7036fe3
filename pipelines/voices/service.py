"""Custom voices of a workspace: creation, listing, reports and deletion."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from pydantic import ValidationError
from sqlmodel import Session

from configs.schema.platform import PlansConfig
from configs.schema.voices import CustomVoicesConfig
from db.accounts import Workspace, lock_workspace
from db.audit import audit, recent_details
from db.billing import ledger
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.files import expire_these_files
from db.voices import voices
from db.voices.queue import ends_in_turn
from db.voices.voices import Voice, VoiceSample
from models.errors import EngineError
from models.registry import TTS
from models.stt.base import FILE, TranscriptionRequest
from pipelines.accounts.authentication import UNAUTHORIZED, Principal
from pipelines.billing.billing import Billing, capture_row, release_row
from pipelines.billing.operation import Operation
from pipelines.errors import (
    SERVICE_FAULTS,
    InvalidRequest,
    NotFound,
    PipelineError,
    PlanRequired,
    StorageUnavailable,
    Unauthorized,
    VoiceNotFound,
    VoiceNotReady,
)
from pipelines.jobs.leases import HOLD
from pipelines.jobs.waiting import reasons_to_wait
from pipelines.ports import STTModel
from pipelines.storage.files import Files, keep_files
from pipelines.storage.room import plan_limits
from pipelines.stt.heard_language import with_language
from pipelines.temporary_directories import RECORDINGS, temporary_directory_in_thread
from pipelines.text.language_names import accent_of, engine_codes, is_language, iso_code
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.tts.voices import STILL_MADE, ReadyCustomVoices, VoiceDirectory, key_of, parse_id
from pipelines.voices.checks import CheckedSamples, SampleChecker, SampleFile
from pipelines.voices.consent import Consent
from pipelines.voices.report import VoiceReport
from pipelines.voices.voice_object import NewVoice, VoiceStatus, voice_event

logger = logging.getLogger(__name__)

UNCLAIMED_S = 600.0  # lifetime of samples that no voice refers to yet
LEAST_SHARE = 0.05  # share of the price for a voice that is deleted after a job has begun it
REPORT_URL_TTL_S = 3600.0
MOST_RECORDINGS = 30  # recordings of a voice with its versions
FAILED_IN, LEAST_FAILURES = timedelta(days=1), 3  # failures allowed on plans with fewer voices
NO_REPORT = "there is no report of this voice"
TOO_SHORT_FOR_CONSENT = (
    "files: to compare their speaker with that of the consent, one recording must have at least 12"
    " seconds of speech; send a longer one, or several"
)
NOT_FOUND = "the workspace has no voice of that id; GET /voices lists them"


@dataclass(frozen=True, slots=True)
class StoredReport:
    voice: Voice
    samples: list[VoiceSample]  # the recordings, in the order of the form
    report: VoiceReport


@dataclass(eq=False, repr=False)
class CustomVoices:
    """Custom voices of workspaces. Every method raises DatabaseUnavailable."""

    database: Database
    files: Files
    billing: Billing
    _plans: PlansConfig
    _config: CustomVoicesConfig
    _checker: SampleChecker
    _clip_checker: SampleChecker
    _stt: STTModel
    directory: VoiceDirectory
    ready_voices: ReadyCustomVoices
    consent: Consent

    def __post_init__(self) -> None:
        self.rules, self._work = self._config.samples, self._config.work
        self._engines = [TTS.read(model).engine for model in self._config.models]

    async def create(
        self,
        principal: Principal,
        new: NewVoice,
        files: Sequence[SampleFile],
        operation: Operation,
        *,
        are_clips: bool = False,
    ) -> Voice:
        """Check and store the samples, queue the voice, and hold its price. Clips may be fewer,
        shorter and longer than samples; long ones are cut.

        Repeated with its Idempotency-Key, it returns the same voice. Raises InvalidRequest and the
        like, PlanRequired, StorageLimit, InsufficientCredit, EngineLost or StorageUnavailable."""
        if (existing := await self._made_before(principal, operation)) is not None:
            return existing  # even if its consent token has expired since
        sentence = self.consent.required(principal.workspace_id, new)
        await self.database.read(self._check_room, principal, new.earlier)
        language = None if new.language is None else await self._known_language(new.language)
        checker = self._clip_checker if are_clips else self._checker
        least_ms = round(checker.rules.min_total_seconds * 1000)
        mine, earlier, owner = principal.workspace_id, new.earlier, str(principal.workspace_id)
        async with self.billing.counted_failure(mine, least_ms, operation):
            async with self._recordings(mine, earlier) as before:
                if earlier is not None and not before:
                    raise InvalidRequest("version_of: the voice has no recordings to compare with")
                if (count := len(before)) + len(files) > MOST_RECORDINGS:
                    raise InvalidRequest(f"files: a voice has at most {MOST_RECORDINGS} recordings")
                prepare = checker.cut if are_clips else checker.convert
                samples = await prepare(files, mine)
                checked = await checker.check([*before, *samples], mine)
            if (sentence or new.reader) is not None and len(checked.speakers) < 2:
                raise InvalidRequest(TOO_SHORT_FOR_CONSENT)
            if sentence is not None:
                await self.consent.check_reader(sentence, checked, checker, mine, count)
            if new.reader is not None:
                await asyncio.to_thread(self.consent.check_same_speaker, new.reader, checked)
            voice_id = operation.new_id("voice")
            voice = Voice(
                id=voice_id,
                workspace_id=mine,
                version_of=None if earlier is None else earlier.id,
                name=new.name,
                name_key=key_of(new.name),
                description=new.description,
                language=language or "",
                accent=None if new.language is None else accent_of(new.language),
                gender=new.gender,
                pitch_hz=checked.pitch_hz,
                estimated_completion=utc_now(),  # until the queue is known
                operation=f"voice-{voice_id}",
            )
            if new.consent is not None or sentence is not None:
                voice.consent = new.consent
                voice.consent_sentence = None if sentence is None else sentence.text
                voice.consent_by, voice.consent_address = principal.actor, new.address
                voice.consent_at = utc_now()
            if earlier is not None:
                same = (earlier.language, earlier.accent, earlier.gender)
                voice.language, voice.accent, voice.gender = same
            elif language is None:
                voice.language = await self._detect_language(checked, owner)
            checked = replace(checked, samples=checked.samples[count:])
            return await self._keep(principal, voice, checked)

    @asynccontextmanager
    async def _recordings(self, mine: int, voice: Voice | None) -> AsyncIterator[list[SampleFile]]:
        """Provide the recordings of a voice, until the end of the block."""
        async with temporary_directory_in_thread(RECORDINGS) as folder:
            recordings: list[SampleFile] = []
            for row in await self.database.read(voices.recordings_of, voice) if voice else ():
                path = folder / row.file_id
                data = await self.files.read(mine, row.file_id)
                await asyncio.to_thread(path.write_bytes, data)
                name = f"recording {len(recordings) + 1} of the voice"
                recordings.append(SampleFile(name, path, is_kept=True))
            yield recordings

    async def check_room(
        self, principal: Principal, operation: Operation, earlier: Voice | None = None
    ) -> None:
        """Checks room and credit before the recordings are received; `create` checks again. Raises
        PlanRequired or InsufficientCredit, unless this request created its voice before."""
        if await self._made_before(principal, operation) is None:
            await self.database.read(self._check_room, principal, earlier)

    async def page(
        self,
        principal: Principal,
        page: int,
        limit: int,
        status: VoiceStatus | None = None,
        language: str | None = None,
        version_of: UUID | None = None,
    ) -> tuple[list[tuple[Voice, str | None]], int]:
        """List one page, newest first, with the names of other owners, and the number of all.
        Raises InvalidRequest for an unknown `language`."""
        if language is not None and not is_language(language):
            raise InvalidRequest(f"language: {language[:40]!r} is not the code of a language")
        codes = None if language is None else engine_codes(language)
        mine = principal.workspace_id
        rows, total = await self.database.read(
            voices.voices_page, mine, page, limit, status, codes, version_of
        )
        return [(row, owner if row.workspace_id != mine else None) for row, owner in rows], total

    async def waits(self, rows: Sequence[Voice]) -> dict[UUID, str]:
        """Say why voices wait (`reasons_to_wait`), by their ids."""
        return await self.database.read(reasons_to_wait, Voice, rows, utc_now(), self._work)

    async def get(self, principal: Principal, voice_id: str) -> Voice:
        """Get a voice. Raises VoiceNotFound."""
        identity = parse_voice_id(voice_id)
        voice = await self.database.read(voices.voice_of, principal.workspace_id, identity)
        if voice is None:
            raise VoiceNotFound(NOT_FOUND)
        return voice

    async def ready(self, principal: Principal, voice_id: str) -> Voice:
        """Get a voice that is ready, and not a version. Raises VoiceNotFound or VoiceNotReady."""
        voice = await self.get(principal, voice_id)
        if voice.version_of is not None:
            raise VoiceNotFound(NOT_FOUND)
        if voice.status != "ready":
            raise VoiceNotReady(voice.reason or STILL_MADE.format(voice.id))
        return voice

    async def report(self, principal: Principal, voice_id: str) -> StoredReport:
        """Read a report. Raises VoiceNotFound, VoiceNotReady, NotFound or StorageUnavailable."""
        voice = await self.get(principal, voice_id)
        if voice.status == "processing":
            raise VoiceNotReady(STILL_MADE.format(voice.id))
        return await self._report_of(voice)

    async def signed_report(self, file_id: str, expires: str, signature: str) -> StoredReport:
        """Read the report of a signed URL. Raises NotFound or StorageUnavailable."""
        file = await self.files.find_signed(file_id, expires, signature)
        voice = await self.database.read(voices.voice_of_report, file.workspace_id, file.id)
        if voice is None:
            raise NotFound(NO_REPORT)
        return await self._report_of(voice)

    def report_address(self, voice: Voice) -> str:
        """Return the signed URL of the report's page, which works for REPORT_URL_TTL_S."""
        assert voice.report_file, "the voice has a report"
        return self.files.url(voice.report_file, voice.workspace_id, REPORT_URL_TTL_S, "reports")

    async def _report_of(self, voice: Voice) -> StoredReport:
        if voice.report_file is None:
            raise NotFound(NO_REPORT)
        data = await self.files.read(voice.workspace_id, voice.report_file)
        samples = await self.database.read(voices.recordings_of, voice)
        try:
            return StoredReport(voice, samples, VoiceReport.model_validate_json(data))
        except ValidationError as error:  # its text would quote values of the report
            extra = {"voice_id": str(voice.id), "wrong_fields": error.error_count()}
            logger.error("voice_report_unreadable", extra=extra)
            raise NotFound(NO_REPORT) from None

    async def delete(self, principal: Principal, voice_id: str) -> None:
        """Delete a voice; an unfinished one is charged for its progress. Raises VoiceNotFound."""
        identity, price = parse_voice_id(voice_id), self.billing.cost("voice", 1)
        digests, files = await self.database.run(_delete, principal, identity, price)
        for digest in digests:
            self.ready_voices.forget(identity, digest)
        await self._delete_files(principal.workspace_id, identity, files)

    async def _delete_files(self, workspace_id: int, voice_id: UUID, file_ids: list[str]) -> None:
        try:
            for file_id in file_ids:
                await self.files.delete(workspace_id, file_id)
            await self.database.forget_deleted()
        except (StorageUnavailable, DatabaseError):  # housekeeping tries again: they have expired
            logger.warning("voice_files_not_deleted", extra={"voice_id": str(voice_id)})

    async def _made_before(self, principal: Principal, operation: Operation) -> Voice | None:
        """Find the voice that an earlier run of the same request created."""
        if operation.name is None:
            return None
        voice_id = operation.new_id("voice")
        return await self.database.read(voices.voice_of, principal.workspace_id, voice_id)

    def _check_room(self, session: Session, principal: Principal, earlier: Voice | None) -> None:
        """Check the room for a voice. Raises PlanRequired, InsufficientCredit or Unauthorized."""
        workspace_id = principal.workspace_id
        workspace = session.get(Workspace, workspace_id)
        if earlier is None:
            self.check_plan(session, workspace)
        failed = recent_details(session, workspace_id, "voice.failed", utc_now() - FAILED_IN)
        count = sum(
            attempt.get("error", "internal_error") not in SERVICE_FAULTS for attempt in failed
        )
        limits = plan_limits(session, self._plans, workspace_id)
        if count >= max(LEAST_FAILURES, limits.custom_voices):
            message = f"{count} voices failed within a day, which is the limit of the plan"
            raise PlanRequired(f"{message}; try again tomorrow, or subscribe to a larger plan")
        if ledger.credit_of(session, workspace_id) < (cost := self._price(principal)):
            raise self.billing.refusal("voice", cost)

    def _price(self, principal: Principal) -> int:
        return 0 if principal.is_owner else self.billing.cost("voice", 1)

    def check_plan(self, session: Session, workspace: Workspace | None) -> None:
        if workspace is None or workspace.id is None:
            raise Unauthorized(UNAUTHORIZED)
        most = plan_limits(session, self._plans, workspace.id).custom_voices
        if voices.count_voices(session, workspace.id) >= most:
            raise PlanRequired(
                f"the plan allows {most} custom voice{'s' if most != 1 else ''}; delete one, "
                "or subscribe to a larger plan"
            )

    async def languages(self) -> list[str]:
        """List the codes of the languages that custom voices support. Raises EngineLost."""
        models = await self.directory.custom_voice_models(self._engines)
        return sorted({code for model in models for code in model.languages})

    async def _known_language(self, language: str) -> str:
        """Return the code of a supported language. Raises InvalidRequest or EngineLost."""
        codes = await self.languages()
        for code in map(iso_code, engine_codes(language)):
            if code in codes:
                return code
        raise InvalidRequest(
            f"language: {language[:40]!r} is not among those of custom voices: {', '.join(codes)}"
        )

    async def _detect_language(self, checked: CheckedSamples, owner: str) -> str:
        """Detect the language of the samples; English if custom voices do not support it."""
        supported = await self.languages()
        request = TranscriptionRequest(pcm=checked.excerpt, urgency=FILE, owner=owner)
        try:
            transcript = await with_language(self._stt.transcribe(request), expected=None)
        except EngineError:  # no reason to refuse the voice
            logger.warning("sample_language_not_detected", exc_info=True)
            return FALLBACK_LANGUAGE
        detected = iso_code(transcript.language)
        return detected if detected in supported else FALLBACK_LANGUAGE

    async def _keep(self, principal: Principal, voice: Voice, checked: CheckedSamples) -> Voice:
        """Store files that expire unless a transaction keeps them. A voice is therefore created
        completely or not at all, whenever a caller disconnects. A refused voice leaves no file."""
        rows: list[VoiceSample] = []
        file_ids: list[str] = []
        try:
            for position, sample in enumerate(checked.samples):
                data = await asyncio.to_thread(sample.file.path.read_bytes)
                file_id = await self.files.put(
                    voice.workspace_id, "sample", sample.media_type, data, UNCLAIMED_S
                )
                file_ids.append(file_id)
                rows.append(
                    VoiceSample(
                        voice_id=voice.id,
                        position=position,
                        file_id=file_id,
                        seconds=sample.duration_s,
                        speech_share=sample.speech_share,
                        snr_db=sample.snr_db,
                        level_dbfs=sample.level_dbfs,
                        clipped_share=sample.clipped_share,
                    )
                )
            kept = await self.database.run(self._add, principal, voice, rows)
        except PipelineError:  # nothing was committed; other errors may follow a commit
            await self._delete_files(voice.workspace_id, voice.id, file_ids)
            raise
        if kept is not voice:
            await self._delete_files(voice.workspace_id, voice.id, file_ids)
        return kept

    def _add(
        self, session: Session, principal: Principal, voice: Voice, samples: list[VoiceSample]
    ) -> Voice:
        workspace_id = voice.workspace_id
        workspace = lock_workspace(session, workspace_id)
        if (existing := voices.voice_of(session, workspace_id, voice.id)) is not None:
            return existing  # the same request, whose lease had expired, began it
        if voice.version_of is None:
            self.check_plan(session, workspace)
        elif not (versions := voices.lock_with_versions(session, workspace_id, voice.version_of)):
            raise VoiceNotFound(NOT_FOUND)
        elif making := [version for version in versions if version.status == "processing"]:
            raise VoiceNotReady(STILL_MADE.format(making[0].id))
        keep_files(session, workspace_id, (sample.file_id for sample in samples))
        now = utc_now()
        voice.created_at = now
        session.add(voice)
        session.flush()
        session.add_all(samples)
        voice.estimated_completion = dict(ends_in_turn(session, now, self._work))[voice.id]
        cost = self._price(principal)
        if not ledger.hold(
            session,
            workspace_id=workspace_id,
            operation=voice.operation,
            service="voice",
            amount=cost,
            expires_at=now + HOLD,
            key_id=principal.key_id or 0,
        ):
            raise self.billing.refusal("voice", cost)
        self.billing.add_events(session, workspace_id, (voice_event("voice.created", voice),))
        details = {
            "samples": len(samples),
            "consent": voice.consent is not None,
            "spoken_consent": voice.consent_sentence is not None,
        }
        audit(session, workspace_id, "voice.created", principal.actor, str(voice.id), details)
        return voice


def parse_voice_id(voice_id: str) -> UUID:
    """Parse the id of a voice. Raises VoiceNotFound."""
    if (identity := parse_id(voice_id)) is None:
        raise VoiceNotFound(NOT_FOUND)
    return identity


def _delete(
    session: Session, principal: Principal, voice_id: UUID, price: int
) -> tuple[set[str | None], list[str]]:
    """Delete a voice and settle its holds; return the digests of its packs, and its files."""
    workspace_id = principal.workspace_id
    # Locked before its voices, as in the erasure: no deadlocks.
    lock_workspace(session, workspace_id, shared=True)
    versions = voices.lock_with_versions(session, workspace_id, voice_id)
    if not versions:
        raise VoiceNotFound(NOT_FOUND)
    files = [file for version in versions for file in voices.files_of(session, version)]
    expire_these_files(session, files, utc_now())
    voices.delete_settings(session, voice_id)
    for voice in versions:
        session.delete(voice)
        if voice.status == "processing" and (voice.attempt or voice.progress):
            cost = round(price * max(voice.progress, LEAST_SHARE))
            capture_row(session, voice, "voice", cost=cost, units=0)
        elif voice.status == "processing":
            release_row(session, voice, "voice")
    session.flush()
    details = {"status": versions[-1].status}
    audit(session, workspace_id, "voice.deleted", principal.actor, str(voice_id), details)
    return {version.pack_digest for version in versions}, files
