"""Enrolled speakers of a workspace: people whose words are labelled by name in transcripts. Only an
embedding of the voice is kept, encrypted, with the name and the consent."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from sqlmodel import Session, col

from db.accounts import lock_workspace
from db.audit import audit
from db.database import Database, page_of
from db.voices.voices import EnrolledSpeaker, speakers_of
from models.audio import Pcm
from models.speaker.base import Embedding
from models.stt.options import SpeakerChoice
from pipelines.accounts.authentication import UNAUTHORIZED, Principal
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import InsufficientScope, InvalidAudio, InvalidRequest, NotFound, Unauthorized
from pipelines.storage.encryption import Encryption
from pipelines.stt import diarization
from pipelines.stt.diarization import SpeakerVoice
from pipelines.stt.live_speakers import SpeakerOptions
from pipelines.tts.voices import parse_id
from pipelines.voices.checks import SampleChecker, SampleFile
from pipelines.voices.consent import Consent
from pipelines.voices.voice_object import NewVoice

MAX_SPEAKERS = 100
NO_SPEAKER = "the workspace has no speaker of that id; GET /speakers lists them"


@dataclass(eq=False, repr=False)
class Speakers:
    """Enrolled speakers of workspaces. Every method raises DatabaseUnavailable."""

    _database: Database
    _encryption: Encryption
    _billing: Billing
    _checker: SampleChecker
    _consent: Consent

    async def enrol(
        self, principal: Principal, new: NewVoice, files: Sequence[SampleFile], operation: Operation
    ) -> EnrolledSpeaker:
        """Check recordings and consent, and enrol the speaker. Raises InvalidRequest and the like,
        or EngineLost."""
        workspace_id = principal.workspace_id
        identity = operation.new_id("voice")
        sentence = self._consent.required(workspace_id, new, "speaker")
        least_ms = round(self._checker.rules.min_total_seconds * 1000)
        async with self._billing.checking(workspace_id, least_ms, operation):
            checked = await self._checker.check(files, workspace_id)
            if sentence is not None:
                await self._consent.check_reader(sentence, checked, self._checker, workspace_id)
            voice = await asyncio.to_thread(voice_of, checked.openings, self._checker)
        speaker = EnrolledSpeaker(
            id=identity,
            workspace_id=workspace_id,
            name=new.name,
            embedding=self._encryption.encrypt(voice.tobytes(), embedding_about(identity)),
            consent="\n".join(filter(None, (new.consent, sentence.text if sentence else None))),
            consent_by=principal.actor,
            consent_address=new.address,
        )
        return await self._database.run(_add, principal, speaker)

    async def page(
        self, workspace_id: int, page: int, limit: int
    ) -> tuple[list[EnrolledSpeaker], int]:
        """List a page of the speakers by name, and their number."""
        return await self._database.read(page_of, speakers_of(workspace_id), page, limit)

    async def delete(self, principal: Principal, speaker_id: str) -> None:
        """Delete a speaker. Raises NotFound."""
        await self._database.run(_delete, principal, speaker_id)
        await self._database.forget_deleted()

    async def known(self, workspace_id: int, wanted: SpeakerChoice) -> tuple[SpeakerVoice, ...]:
        """Return all enrolled speakers, none, or those with these ids. Raises NotFound."""
        if not wanted:
            return ()
        rows, _ = await self._database.read(page_of, speakers_of(workspace_id), 1, MAX_SPEAKERS)
        chosen = {str(row.id): row for row in rows}
        if not isinstance(wanted, bool):
            if not set(wanted) <= set(chosen):
                raise NotFound(f"known_speakers: {NO_SPEAKER}")
            chosen = {name: chosen[name] for name in wanted}
        return tuple(self._voice(row) for row in chosen.values())

    async def named(
        self, principal: Principal, wanted: SpeakerChoice, granted: SpeakerChoice = False
    ) -> tuple[SpeakerVoice, ...]:
        """Return the speakers of `known`. Raises InsufficientScope for a browser token or client
        secret, which would identify people, unless its maker `granted` exactly these speakers."""
        if wanted and wanted != granted and principal.secret is not None:
            raise InsufficientScope(
                "known_speakers: only an API key may identify enrolled speakers"
            )
        return await self.known(principal.workspace_id, wanted)

    async def options(
        self, principal: Principal, wanted: SpeakerChoice, granted: SpeakerChoice = False
    ) -> SpeakerOptions:
        """Returns options that label speakers. Raises EngineError, or as `named`."""
        speakers = await self.named(principal, wanted, granted)
        return SpeakerOptions(await asyncio.to_thread(self._checker.encoder), speakers)

    def _voice(self, row: EnrolledSpeaker) -> SpeakerVoice:
        data = self._encryption.decrypt(row.embedding, embedding_about(row.id))
        return SpeakerVoice(np.frombuffer(data, np.float32), math.inf, row.name)


def voice_of(signals: Sequence[Pcm], checker: SampleChecker) -> Embedding:
    """Return the embedding that diarization compares; blocking. Raises InvalidAudio."""
    voice = diarization.voice_of(np.concatenate(signals), checker.vad, checker.encoder())
    if voice is None:
        raise InvalidAudio("files: they seem to hold more than one speaker")
    return voice


def embedding_about(speaker_id: UUID) -> str:
    """Return the associated data of an encrypted embedding."""
    return f"speaker:{speaker_id}"


def _add(session: Session, principal: Principal, speaker: EnrolledSpeaker) -> EnrolledSpeaker:
    workspace_id = principal.workspace_id
    if lock_workspace(session, workspace_id) is None:
        raise Unauthorized(UNAUTHORIZED)
    there = session.exec(speakers_of(workspace_id)).all()
    for existing in there:
        if existing.id == speaker.id:
            return existing  # added by an earlier run of the same request
        if existing.name.casefold() == speaker.name.casefold():
            raise InvalidRequest("name: another speaker has this name")
    if len(there) >= MAX_SPEAKERS:
        raise InvalidRequest(f"a workspace has at most {MAX_SPEAKERS} speakers")
    session.add(speaker)
    audit(session, workspace_id, "speaker.enrolled", principal.actor, str(speaker.id))
    return speaker


def _delete(session: Session, principal: Principal, speaker_id: str) -> None:
    is_it = col(EnrolledSpeaker.id) == parse_id(speaker_id)
    speaker = session.exec(speakers_of(principal.workspace_id).where(is_it)).first()
    if speaker is None:
        raise NotFound(NO_SPEAKER)
    session.delete(speaker)
    audit(session, principal.workspace_id, "speaker.deleted", principal.actor, str(speaker.id))
