"""Consent recordings for OpenAI's clients: a speaker has read a phrase aloud that never changes.

A recorded phrase could be played again, unlike a new sentence (`consent.py`). It is therefore valid
in its workspace only, its speaker must be that of the voice, and it counts as an attestation."""

from dataclasses import dataclass
from uuid import UUID

import numpy as np
from sqlalchemy import tuple_
from sqlmodel import Session, col

from db.accounts import lock_workspace
from db.audit import audit
from db.database import Database, page_of
from db.voices.voices import VoiceConsent, consents_of
from models.speaker.base import Embedding, mean_embedding
from pipelines.accounts.authentication import UNAUTHORIZED, Principal
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation, made_at, place_of
from pipelines.errors import InvalidRequest, NotFound, Unauthorized
from pipelines.storage.encryption import Encryption
from pipelines.voices.checks import SampleChecker, SampleFile
from pipelines.voices.consent import Consent

MAX_CONSENTS = 100
NO_CONSENT = "the workspace has no consent recording of that id"


@dataclass(frozen=True, slots=True)
class ConsentRecordings:
    """Consents, with encrypted embeddings of speakers. Methods raise DatabaseUnavailable."""

    _database: Database
    _encryption: Encryption
    _billing: Billing
    _checker: SampleChecker
    _consent: Consent

    async def add(
        self,
        principal: Principal,
        name: str,
        language: str,
        recording: SampleFile,
        operation: Operation,
    ) -> VoiceConsent:
        """Check that a recording begins with the phrase of a language, and keep its speaker. Raises
        InvalidRequest and the like for the recording, or EngineLost."""
        workspace_id = principal.workspace_id
        identity = operation.new_id("voice")
        phrase = self._consent.phrase(language)
        least_ms = round(self._checker.rules.max_seconds * 1000)
        async with self._billing.checking(workspace_id, least_ms, operation):
            checked = await self._checker.check([recording], workspace_id)
            try:
                await self._consent.find(phrase, checked.openings, str(workspace_id))
            except InvalidRequest:
                message = f"files: the consent phrase was not recognised; read: {phrase.text}"
                raise InvalidRequest(message) from None
        speaker = mean_embedding(checked.speakers)
        consent = VoiceConsent(
            id=identity,
            workspace_id=workspace_id,
            name=name,
            language=language,
            phrase=phrase.text,
            embedding=self._encryption.encrypt(speaker.tobytes(), consent_about(identity)),
        )
        consent.created_at = made_at(identity) or consent.created_at
        return await self._database.run(_add, principal, consent)

    async def page(self, workspace_id: int, after: UUID | None, limit: int) -> list[VoiceConsent]:
        """List consents that are older than the consent `after`, newest first. Raises NotFound."""

        def read(session: Session) -> list[VoiceConsent]:
            query = consents_of(workspace_id)
            if after is not None:
                last = session.exec(query.where(VoiceConsent.id == after)).first()
                place = tuple_(col(VoiceConsent.created_at), col(VoiceConsent.id))
                after_place = place_of(after, last.created_at if last else None)
                query = query.where(place < after_place)
            return list(session.exec(query.limit(limit)))

        return await self._database.read(read)

    async def get(self, workspace_id: int, consent_id: UUID) -> VoiceConsent:
        """Get a consent. Raises NotFound."""
        return await self._database.read(_find, workspace_id, consent_id)

    async def rename(self, principal: Principal, consent_id: UUID, name: str) -> VoiceConsent:
        """Change the name of a consent. Raises NotFound."""

        def change(session: Session) -> VoiceConsent:
            workspace_id = principal.workspace_id
            consent = _find(session, workspace_id, consent_id, lock=True)
            consent.name = name
            session.add(consent)
            audit(session, workspace_id, "consent.renamed", principal.actor, str(consent_id))
            return consent

        return await self._database.run(change)

    async def delete(self, principal: Principal, consent_id: UUID) -> None:
        """Delete a consent; voices that were created with it stay. Raises NotFound."""

        def drop(session: Session) -> None:
            workspace_id = principal.workspace_id
            session.delete(_find(session, workspace_id, consent_id, lock=True))
            audit(session, workspace_id, "consent.deleted", principal.actor, str(consent_id))

        await self._database.run(drop)
        await self._database.forget_deleted()

    def reader(self, consent: VoiceConsent) -> Embedding:
        data = self._encryption.decrypt(consent.embedding, consent_about(consent.id))
        return np.frombuffer(data, np.float32)


def consent_about(consent_id: UUID) -> str:
    """Return the associated data of an encrypted embedding."""
    return f"consent-recording:{consent_id}"


def _add(session: Session, principal: Principal, consent: VoiceConsent) -> VoiceConsent:
    workspace_id = principal.workspace_id
    if lock_workspace(session, workspace_id) is None:
        raise Unauthorized(UNAUTHORIZED)
    ours = consents_of(workspace_id)
    if (existing := session.exec(ours.where(VoiceConsent.id == consent.id)).first()) is not None:
        return existing  # added by an earlier run of the same request
    if page_of(session, ours, 1, 1)[1] >= MAX_CONSENTS:
        raise InvalidRequest(f"a workspace has at most {MAX_CONSENTS} consent recordings")
    session.add(consent)
    audit(session, workspace_id, "consent.recorded", principal.actor, str(consent.id))
    return consent


def _find(
    session: Session, workspace_id: int, consent_id: UUID, *, lock: bool = False
) -> VoiceConsent:
    query = consents_of(workspace_id).where(VoiceConsent.id == consent_id)
    if (consent := session.exec(query.with_for_update() if lock else query).first()) is None:
        raise NotFound(NO_CONSENT)
    return consent
