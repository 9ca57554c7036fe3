"""Custom voices after their creation: names, previews, shares, and sealed files.

A file is encrypted and authenticated by AES-256-GCM: under the service's own keys and for the
workspace, or under the key of a passphrase (scrypt, RFC 7914, with those OWASP parameters that take
little memory). It is a mark with the version, a salt, and JSON that Encryption has encrypted."""

import asyncio
import hashlib
import os
import secrets
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat
from sqlmodel import Session, col, delete, select, update

from db.accounts import Workspace, lock_workspace
from db.audit import SERVICE, audit
from db.database import change_rows, page_of, utc_now
from db.voices.voices import Voice, VoiceShare, is_valid_share, shares_of, voice_of
from models.base import Accent
from models.errors import WeightsCorrupt
from models.tts.voice_pack import MOST_BYTES, pack_digest
from models.tts.voice_prompt import READERS
from pipelines.accounts.authentication import Principal
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidRequest, NotFound, VoiceNotFound
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.storage.files import keep_files
from pipelines.tts.voices import key_of, parse_id
from pipelines.voices.report import VoiceReport
from pipelines.voices.service import NOT_FOUND, UNCLAIMED_S, CustomVoices, parse_voice_id
from pipelines.voices.voice_object import VoiceGenderGiven, voice_event

NO_VOICE = "file: is not a voice that this version of the service can import"
MARK, SALT_BYTES, ABOUT = b"antiphon voice 1\n", 16, "exported voice "
MAX_BYTES = 3 << 20
CODE_LIFETIME = timedelta(days=7)
ORIGIN = {"id", "created_at", "exported_at", "consent_claimed"}

Text = Annotated[str, Field(max_length=2000)]
Short = Annotated[str, Field(max_length=40)]


class VoiceFile(BaseModel):
    """The content of a file, most of it in the columns of the voice."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    id: UUID
    created_at: datetime
    exported_at: datetime
    name: str = Field(min_length=1, max_length=200)
    description: Text | None
    language: str = Field(max_length=8)
    accent: Accent | None
    gender: VoiceGenderGiven
    pitch_hz: FiniteFloat | None
    engine: Short
    similarity: FiniteFloat
    consent: Text | None
    consent_sentence: Text | None
    consent_by: Annotated[str, Field(pattern=r"^(user|key):[0-9]{1,20}$")] | None
    consent_address: Annotated[str, Field(max_length=64)] | None
    consent_at: AwareDatetime | None
    consent_claimed: bool = False  # stated only by a file, which its passphrase could forge
    pack: bytes = Field(max_length=MOST_BYTES)
    report: VoiceReport | None


@dataclass(frozen=True, slots=True)
class VoiceLibrary:
    """The voices of workspaces. Every method raises DatabaseUnavailable, and VoiceNotFound for a
    voice of another workspace."""

    _custom: CustomVoices
    _encryption: Encryption

    async def rename(
        self, principal: Principal, voice_id: str, name: str, description: str | None = None
    ) -> Voice:
        """Change the name of a voice, and its description unless that is None."""
        identity, workspace_id = parse_voice_id(voice_id), principal.workspace_id

        def rename(session: Session) -> Voice:
            if (voice := voice_of(session, workspace_id, identity, lock=True)) is None:
                raise VoiceNotFound(NOT_FOUND)
            voice.name, voice.name_key = name, key_of(name)
            if description is not None:
                voice.description = description
            session.add(voice)
            audit(session, workspace_id, "voice.renamed", principal.actor, str(identity))
            return voice

        renamed = await self._custom.database.run(rename)
        self._custom.ready_voices.forget(identity, None)
        return renamed

    async def preview(self, principal: Principal, voice_id: str) -> bytes:
        """Return the preview as Ogg Opus. Raises NotFound or StorageUnavailable."""
        voice = await self._custom.get(principal, voice_id)
        if voice.preview_file is None:
            raise NotFound(
                "there is no preview: previews exist only while the voice is being built"
            )
        return await self._custom.files.read(voice.workspace_id, voice.preview_file)

    async def offer(
        self, principal: Principal, voice_id: str, workspace_id: int | None
    ) -> tuple[Any, str | None]:
        """Offer a ready voice to a workspace or, if `workspace_id` is None, to the first that sends
        the code. The speaker must have agreed to the voice.

        Returns a row of `shares_of`, the same for the same workspace, and the code, which is not
        stored. Raises VoiceNotReady, InvalidRequest or NotFound."""
        voice = await self._custom.ready(principal, voice_id)
        if voice.consent_at is None or is_consent_claimed(voice):
            raise InvalidRequest(
                "there is no consent of the speaker on record, so the voice cannot be shared"
            )
        if workspace_id == voice.workspace_id:
            raise InvalidRequest("workspace_id: this workspace has the voice already")
        code = f"shr_{secrets.token_urlsafe(24)}" if workspace_id is None else None

        def offer(session: Session) -> Any:
            if voice_of(session, voice.workspace_id, voice.id, lock=True) is None:
                raise VoiceNotFound(NOT_FOUND)
            rows = shares_of(voice.workspace_id).where(VoiceShare.voice_id == voice.id)
            if workspace_id is not None:
                if session.get(Workspace, workspace_id) is None:
                    raise NotFound("workspace_id: no workspace has that id")
                same = rows.where(VoiceShare.workspace_id == workspace_id, is_valid_share())
                if (share := session.execute(same).first()) is not None:
                    return share
            offered = VoiceShare(voice_id=voice.id, workspace_id=workspace_id)
            if code is not None:
                offered.code_digest = code_digest(code)
                offered.expires_at = utc_now() + CODE_LIFETIME
            session.add(offered)
            session.flush()
            actor = principal.actor
            details = {"share": str(offered.id), "speaker_allows_sharing": True}
            audit(session, voice.workspace_id, "voice.shared", actor, str(voice.id), details)
            return session.execute(rows.where(VoiceShare.id == offered.id)).one()

        return await self._custom.database.run(offer), code

    async def shares(self, principal: Principal, page: int, limit: int) -> tuple[list[Any], int]:
        """List one page of the rows of `shares_of`, newest first, and their number."""
        query = shares_of(principal.workspace_id)
        return await self._custom.database.read(page_of, query, page, limit)

    async def redeem(self, principal: Principal, code: str) -> Any:
        """Accept an offer by its code, once; return the row of `shares_of`. Raises NotFound, also
        for a code that was used or has expired, or InvalidRequest."""

        def accept(session: Session) -> Any:
            is_it = col(VoiceShare.code_digest) == code_digest(code)
            is_open = col(VoiceShare.expires_at) > utc_now()
            taken = update(VoiceShare).values(workspace_id=principal.workspace_id, code_digest=None)
            share = session.exec(select(VoiceShare).where(is_it, is_open)).first()
            if share is None or not change_rows(session, taken.where(is_it)):
                raise NotFound("code: is unknown, or has been used or expired")
            if voice_of(session, principal.workspace_id, share.voice_id) is not None:
                raise InvalidRequest("code: this workspace has the voice already")
            return _change(session, principal, share.id, accept=True)

        return self._changed(await self._custom.database.run(accept))

    async def change_share(self, principal: Principal, share_id: str, *, accept: bool) -> Any:
        """Accept an offer, or end a share by either side, everywhere within 5 s; return the row of
        `shares_of`. Raises NotFound."""

        def change(session: Session) -> Any:
            return _change(session, principal, parse_id(share_id), accept=accept)

        return self._changed(await self._custom.database.run(change))

    def _changed(self, share: Any) -> Any:
        self._custom.ready_voices.forget(share.voice_id, None)
        return share

    async def save(self, principal: Principal, voice_id: str, passphrase: str | None) -> bytes:
        """Return the file of a ready voice, without its recordings. Only the workspace itself can
        open a file without a passphrase. Raises VoiceNotReady or StorageUnavailable."""
        voice = await self._custom.ready(principal, voice_id)
        parts = voice.model_dump() | {"exported_at": utc_now(), "report": None}
        parts["consent_claimed"] = is_consent_claimed(voice)
        parts["pack"] = await self._custom.files.read(voice.workspace_id, voice.pack_file or "")
        if voice.report_file is not None:
            report = await self._custom.files.read(voice.workspace_id, voice.report_file)
            parts["report"] = VoiceReport.model_validate_json(report)
        content = VoiceFile.model_validate(parts).model_dump_json().encode()
        details = {"passphrase": bool(passphrase)}
        await self._custom.database.run(
            audit, voice.workspace_id, "voice.exported", principal.actor, str(voice.id), details
        )
        salt = os.urandom(SALT_BYTES)
        encryption, about = await asyncio.to_thread(
            self._sealing, voice.workspace_id, passphrase, salt
        )
        return MARK + salt + encryption.encrypt(content, about)

    async def load(
        self, principal: Principal, data: bytes, passphrase: str | None, operation: Operation
    ) -> Voice:
        """Create a voice from a file. Raises InvalidRequest for a file that was changed or does not
        fit this service; PlanRequired, StorageLimit, EngineLost or StorageUnavailable."""
        custom, workspace_id, now = self._custom, principal.workspace_id, utc_now()
        file = await asyncio.to_thread(self._open, workspace_id, data, passphrase)
        model, *_ = await custom.directory.custom_voice_models([file.engine])
        if model.engine != file.engine or file.language not in model.languages:
            raise InvalidRequest("file: no model of this service speaks the voice in its language")
        try:
            await asyncio.to_thread(READERS[model.pack], file.pack)
        except WeightsCorrupt:
            raise InvalidRequest(NO_VOICE) from None
        if custom.consent.needed != "off" and file.consent_at is None:
            raise InvalidRequest(
                "file: does not contain the speaker's consent, which is required here"
            )
        if passphrase:  # knowing it suffices to make such a file
            file.consent_claimed = True
        if custom.consent.needed == "spoken":
            field = "passphrase" if passphrase else "file"
            if file.consent_claimed or file.consent_sentence is None:
                raise InvalidRequest(
                    f"{field}: this service only imports voices whose spoken consent it recorded"
                    " itself"
                )
        voice_id = operation.new_id("voice")
        parts = [file.pack]
        if file.report is not None:
            parts.append(file.report.model_dump_json().encode())
        ids = [
            await custom.files.put(workspace_id, "voice", "", part, UNCLAIMED_S) for part in parts
        ]
        row = file.model_dump(exclude=ORIGIN | {"pack", "report"}) | {"name_key": key_of(file.name)}
        row |= {"id": voice_id, "workspace_id": workspace_id, "operation": f"voice-{voice_id}"}
        row |= {"status": "ready", "progress": 1.0, "estimated_completion": now, "finished_at": now}
        row |= {"imported": file.model_dump(mode="json", include=ORIGIN), "pack_file": ids[0]}
        row |= {"pack_digest": pack_digest(file.pack), "report_file": ids[1] if ids[1:] else None}
        voice = Voice(**row)

        def add(session: Session) -> Voice:
            workspace = lock_workspace(session, workspace_id)
            if (existing := voice_of(session, workspace_id, voice_id)) is not None:
                return existing  # the same request began it
            custom.check_plan(session, workspace)
            keep_files(session, workspace_id, ids)
            session.add(voice)
            session.flush()
            custom.billing.add_events(session, workspace_id, (voice_event("voice.ready", voice),))
            details = {"consent": file.consent_at is not None, "claimed": file.consent_claimed}
            actor = principal.actor
            audit(session, workspace_id, "voice.imported", actor, str(voice_id), details)
            return voice

        return await custom.database.run(add)

    def _open(self, workspace_id: int, data: bytes, passphrase: str | None) -> VoiceFile:
        """Open a file; blocking. Raises InvalidRequest."""
        salt, rest = data[len(MARK) :][:SALT_BYTES], data[len(MARK) + SALT_BYTES :]
        try:
            if not data.startswith(MARK):
                raise ValueError("another format")
            encryption, about = self._sealing(workspace_id, passphrase, salt)
            content = encryption.decrypt(rest, about)
            file = VoiceFile.model_validate_json(content)
            (file.consent_at or file.created_at).astimezone(UTC)  # a time in the year 1 overflows
            if b"\\u0000" in content or not file.name.isprintable():
                raise ValueError("control characters")
        except DecryptionError:
            what = (
                "it is wrong"
                if passphrase
                else "the file needs a passphrase, or was sealed by another workspace or service"
            )
            raise InvalidRequest(f"passphrase: {what}, or the file was changed") from None
        except (ValueError, OverflowError):
            raise InvalidRequest(NO_VOICE) from None
        return file

    def _sealing(
        self, workspace_id: int, passphrase: str | None, salt: bytes
    ) -> tuple[Encryption, str]:
        """Returns the encryption of a file and its associated data; blocking, 0.1 s and 32 MiB."""
        if not passphrase:
            return self._encryption, f"{ABOUT}{salt.hex()} of {workspace_id}"
        key = Scrypt(salt, length=32, n=2**15, r=8, p=3).derive(passphrase.encode())
        return Encryption([b64encode(key).decode()]), ABOUT + salt.hex()


def is_consent_claimed(voice: Voice) -> bool:
    """Whether only the file of an imported voice states that the speaker agreed. Imports by earlier
    releases, which did not record this, count as such."""
    return voice.imported is not None and bool(voice.imported.get("consent_claimed", True))


def code_digest(code: str) -> bytes:
    """Return the stored digest of a share's code; a fast hash suffices, as codes are random."""
    return hashlib.sha256(code.encode()).digest()


def _change(session: Session, principal: Principal, share_id: UUID | None, *, accept: bool) -> Any:
    """Accept or end a share; return the row of `shares_of`. Raises NotFound."""
    mine = principal.workspace_id
    query = shares_of(mine).where(VoiceShare.id == share_id)
    row = session.execute(query).first()
    if row is None or (accept and row.workspace_id != mine):
        raise NotFound("no voice is shared under that id; GET /voice-shares lists them")
    statement: Any = delete(VoiceShare).where(col(VoiceShare.id) == share_id)
    if accept:
        statement = update(VoiceShare).where(col(VoiceShare.id) == share_id)
        statement = statement.values(accepted_at=row.accepted_at or utc_now(), expires_at=None)
        # A workspace has only one share of a voice, so that ending it ends all access.
        others = delete(VoiceShare).where(col(VoiceShare.voice_id) == row.voice_id)
        others = others.where(col(VoiceShare.workspace_id) == mine)
        change_rows(session, others.where(col(VoiceShare.id) != share_id))
    change_rows(session, statement)
    action = "voice.share_accepted" if accept else "voice.share_ended"
    for workspace_id in sorted({row.owner_id, row.workspace_id or row.owner_id}):
        actor = principal.actor if workspace_id == mine else SERVICE
        audit(session, workspace_id, action, actor, str(row.voice_id), {"share": str(share_id)})
    return session.execute(query).first() or row
