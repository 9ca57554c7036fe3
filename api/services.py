"""All that the routes can reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from configs.plans_schema import PlansConfig
from configs.settings import Settings
from db.session import Database
from pipelines.accounts import Accounts
from pipelines.model_list import ModelList

if TYPE_CHECKING:
    from pipelines.chat import ChatPipeline
    from pipelines.speech import SpeechPipeline
    from pipelines.transcription import TranscriptionPipeline


@dataclass(frozen=True, slots=True)
class Services:
    """Pipelines and stores; a test builds it over local engines, the gateway over handles."""

    settings: Settings
    plans: PlansConfig
    database: Database
    accounts: Accounts
    models: ModelList
    speech: SpeechPipeline
    transcription: TranscriptionPipeline
    chat: ChatPipeline
