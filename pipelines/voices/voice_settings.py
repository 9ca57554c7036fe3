"""Voice settings that a workspace has stored for speech through ElevenLabs' dialect."""

from collections.abc import Mapping

from sqlmodel import Session, select

from db.accounts import lock_workspace
from db.database import Database
from db.voices.voices import StoredVoiceSettings
from pipelines.accounts.authentication import UNAUTHORIZED
from pipelines.errors import Unauthorized
from pipelines.tasks import TtlCache
from pipelines.tts.voices import MAX_REMEMBERED, REMEMBERED_S

SettingsByVoice = Mapping[str, Mapping[str, float]]
"""The stored values by the id of the voice, and by the name of the setting."""


class VoiceSettingsStore:
    """Stores settings, cached for REMEMBERED_S. Methods raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stored: TtlCache[int, SettingsByVoice] = TtlCache(REMEMBERED_S, MAX_REMEMBERED)

    async def of(self, workspace_id: int) -> SettingsByVoice:
        """Return all settings that the workspace has stored."""

        def read(session: Session) -> SettingsByVoice:
            query = select(StoredVoiceSettings).where(
                StoredVoiceSettings.workspace_id == workspace_id
            )
            return {row.voice_id: row.settings for row in session.exec(query)}

        return await self._stored.get(workspace_id, lambda: self._database.read(read))

    async def change(self, workspace_id: int, voice_id: str, changes: Mapping[str, float]) -> None:
        """Store settings of a voice; others keep their values."""

        def write(session: Session) -> None:
            if lock_workspace(session, workspace_id) is None:
                raise Unauthorized(UNAUTHORIZED)
            row = session.get(StoredVoiceSettings, (workspace_id, voice_id))
            stored = {} if row is None else row.settings
            session.merge(
                StoredVoiceSettings(
                    workspace_id=workspace_id, voice_id=voice_id, settings={**stored, **changes}
                )
            )

        await self._database.run(write)
        self._stored.forget(workspace_id)
