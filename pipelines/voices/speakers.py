"""Enrolled speakers of a workspace: people whose words are told by name in transcripts.

Only an embedding of the voice is kept, encrypted, with the name and the consent; recordings are
deleted once it is computed.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
from sqlmodel import Session

from configs.schema.voices import SampleRules
from configs.settings import ConsentNeeded
from db.accounts import lock_workspace
from db.audit import audit
from db.database import Database, page_of
from db.voices.speakers import EnrolledSpeaker, speakers_of
from models.audio import Pcm
from models.speaker.base import Embedding, SpeakerEncoder, mean_embedding
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from pipelines.accounts.authentication import UNAUTHORIZED, Principal
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.segments import SpeechSegment, spans_of
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidAudio, InvalidRequest, NotFound, Unauthorized
from pipelines.storage.encryption import Encryption
from pipelines.stt.diarization import (
    KnownSpeaker,
    WindowEmbeddings,
    covered_s,
    groups_of,
    voice_windows,
)
from pipelines.stt.live_speakers import SpeakerOptions
from pipelines.tts.voices import parse_id
from pipelines.voices.checks import SampleChecker, SampleFile
from pipelines.voices.consent import Consent
from pipelines.voices.service import new_id

MAX_SPEAKERS = 100
MIN_VOICE_S = 1.5  # of speech in a recording
REFERENCE_S = (2.0, 10.0)  # of a recording that comes with a request
NO_SPEAKER = "the workspace has no speaker of that id; GET /speakers lists them"
Wanted = bool | Sequence[str]
"""Which enrolled speakers are told by name: all, none, or those of these ids."""


@dataclass(frozen=True, slots=True)
class NewSpeaker:
    """A request to enrol a speaker."""

    name: str
    consent: str | None = None  # attested in words
    consent_token: str | None = None  # of a spoken sentence
    address: str | None = None  # of the client


@dataclass(eq=False, repr=False)
class Speakers:
    """Every method raises DatabaseUnavailable."""

    _database: Database
    _encryption: Encryption
    _billing: Billing
    _decoder: AudioDecoder
    _vad: VADEngine
    _encoder: Callable[[], SpeakerEncoder]  # called in a thread; the first call may load the engine
    rules: SampleRules
    _consent: Consent
    _consent_needed: ConsentNeeded

    async def enrol(
        self,
        principal: Principal,
        new: NewSpeaker,
        files: Sequence[SampleFile],
        operation: Operation,
    ) -> EnrolledSpeaker:
        """Checks the recordings and the consent, at the price of their transcription.

        Consent is needed in any case. Raises InvalidRequest and the like, InsufficientCredit or
        EngineLost.
        """
        workspace_id, owner = principal.workspace_id, str(principal.workspace_id)
        needed: ConsentNeeded = "spoken" if self._consent_needed == "spoken" else "attest"
        sentence = self._consent.required(
            workspace_id, new.consent, new.consent_token, needed, "speaker"
        )
        least_ms = round(self.rules.min_total_seconds * 1000)
        async with self._billing.counted_failure(workspace_id, "stt", least_ms, operation):
            checker = SampleChecker(self._decoder, self._vad, self._encoder, self.rules)
            checked = await checker.check(files, workspace_id)
        ms = round(1000 * sum(sample.duration_s for sample in checked.samples))
        charging = self._billing.hold(workspace_id, "stt", ms, operation)
        async with await charging as charge:
            charge.made = ms
            if sentence is not None:
                place, said = await self._consent.find(sentence, checked.openings, owner)
                await checker.check_speaker(said, checked, place, self._consent.min_similarity)
            voices = [
                await self._voice(pcm, f"files: {sample.file.name!r}")
                for pcm, sample in zip(checked.openings, checked.samples, strict=True)
            ]
            identity = new_id(operation)
            speaker = EnrolledSpeaker(
                id=identity,
                workspace_id=workspace_id,
                name=new.name,
                embedding=self._encryption.encrypt(
                    mean_embedding(np.stack(voices)).tobytes(), embedding_about(identity)
                ),
                consent=new.consent,
                consent_sentence=None if sentence is None else sentence.text,
                consent_by=principal.actor,
                consent_address=new.address,
            )
            kept = await self._database.run(_add, principal, speaker)
            await charge.capture_delivered(ms)
        return kept

    async def page(
        self, workspace_id: int, page: int, limit: int
    ) -> tuple[list[EnrolledSpeaker], int]:
        """A page of them by name, and their number."""
        return await self._database.read(page_of, speakers_of(workspace_id), page, limit)

    async def delete(self, principal: Principal, speaker_id: str) -> None:
        """Raises NotFound."""
        await self._database.run(_delete, principal, _parse(speaker_id))
        await self._database.forget_deleted()

    async def known(self, workspace_id: int, wanted: Wanted) -> tuple[KnownSpeaker, ...]:
        """The speakers that are told by name. Raises NotFound for an unknown id."""
        if not wanted:
            return ()
        rows, _ = await self._database.read(page_of, speakers_of(workspace_id), 1, MAX_SPEAKERS)
        if not isinstance(wanted, bool):
            by_id = {row.id: row for row in rows}
            if missing := [one for one in wanted if parse_id(one) not in by_id]:
                raise NotFound(f"known_speakers: {missing[0][:40]!r}: {NO_SPEAKER}")
            rows = [by_id[identity] for identity in dict.fromkeys(map(_parse, wanted))]
        opened = (self._encryption.decrypt(row.embedding, embedding_about(row.id)) for row in rows)
        return tuple(
            KnownSpeaker(row.name, np.frombuffer(data, np.float32))
            for row, data in zip(rows, opened, strict=True)
        )

    async def options(self, workspace_id: int, wanted: Wanted) -> SpeakerOptions:
        """What a session that labels speakers needs. Raises NotFound or EngineError."""
        known = await self.known(workspace_id, wanted)
        return SpeakerOptions(await asyncio.to_thread(self._encoder), known)

    async def reference(self, name: str, path: Path, what: str, workspace_id: int) -> KnownSpeaker:
        """A speaker whose recording comes with the request; `what` names it in messages.

        Raises InvalidAudio and as AudioDecoder.decode."""
        audio = await self._decoder.decode(path, owner=workspace_id, max_duration_s=REFERENCE_S[1])
        if audio.duration_s < REFERENCE_S[0]:
            raise InvalidAudio(f"{what}: it must last {REFERENCE_S[0]:g} to {REFERENCE_S[1]:g} s")
        return KnownSpeaker(name, await self._voice(audio.pcm, what))

    async def _voice(self, pcm: Pcm, what: str) -> Embedding:
        return await asyncio.to_thread(_voice_of, pcm, what, self._vad, self._encoder)


def embedding_about(speaker_id: UUID) -> str:
    """The associated data of an encrypted embedding."""
    return f"speaker:{speaker_id}"


def _voice_of(
    pcm: Pcm, what: str, vad: VADEngine, encoder: Callable[[], SpeakerEncoder]
) -> Embedding:
    """The mean embedding of windows as diarization compares them; blocking.

    Raises InvalidAudio for too little speech, or several speakers."""
    segment = SpeechSegment(0, len(pcm))
    spans = spans_of(vad.probabilities(pcm), vad.capabilities.frame_samples, segment)
    windows = voice_windows(spans)
    places = np.array(windows).reshape(-1, 2) / VAD_SAMPLE_RATE
    if covered_s(places) < MIN_VOICE_S:
        raise InvalidAudio(f"{what} holds too little speech")
    voices = WindowEmbeddings(places, encoder().embed_pieces(pcm, windows))
    if groups_of(voices).max() > 0:
        raise InvalidAudio(f"{what} seems to hold more than one speaker")
    return mean_embedding(voices.embeddings)


def _parse(speaker_id: str) -> UUID:
    """Raises NotFound."""
    if (identity := parse_id(speaker_id)) is None:
        raise NotFound(NO_SPEAKER)
    return identity


def _add(session: Session, principal: Principal, speaker: EnrolledSpeaker) -> EnrolledSpeaker:
    workspace_id = principal.workspace_id
    if lock_workspace(session, workspace_id) is None:
        raise Unauthorized(UNAUTHORIZED)
    there = list(session.exec(speakers_of(workspace_id)))
    if (made := next((one for one in there if one.id == speaker.id), None)) is not None:
        return made  # by an earlier run of the same request
    if len(there) >= MAX_SPEAKERS:
        raise InvalidRequest(f"a workspace has at most {MAX_SPEAKERS} speakers")
    if any(one.name.casefold() == speaker.name.casefold() for one in there):
        raise InvalidRequest("name: another speaker has this name")
    session.add(speaker)
    spoken = speaker.consent_sentence is not None
    audit(
        session,
        workspace_id,
        "speaker.enrolled",
        principal.actor,
        str(speaker.id),
        {"spoken_consent": spoken},
    )
    return speaker


def _delete(session: Session, principal: Principal, speaker_id: UUID) -> None:
    query = speakers_of(principal.workspace_id).where(EnrolledSpeaker.id == speaker_id)
    if (speaker := session.exec(query).first()) is None:
        raise NotFound(NO_SPEAKER)
    session.delete(speaker)
    audit(session, principal.workspace_id, "speaker.deleted", principal.actor, str(speaker_id))
