"""All that the routes can reach."""

from dataclasses import dataclass, field

from api.sockets.registry import SocketRegistry
from configs.metrics_reports import OwnReports, Reports
from configs.plans_schema import PlansConfig
from configs.settings import Settings
from db.session import Database
from pipelines.accounts import Accounts
from pipelines.billing import Billing
from pipelines.chat import ChatPipeline
from pipelines.files import Files
from pipelines.listening import ListeningPipeline
from pipelines.model_list import ModelList
from pipelines.speech import SpeechPipeline
from pipelines.subscriptions import Subscriptions
from pipelines.transcription import TranscriptionPipeline
from pipelines.webhooks.registration import Webhooks


@dataclass(frozen=True, slots=True)
class Services:
    """Pipelines and stores; a test builds it over local engines, the gateway over handles."""

    settings: Settings
    plans: PlansConfig
    database: Database
    accounts: Accounts
    billing: Billing
    subscriptions: Subscriptions
    files: Files
    models: ModelList
    speech: SpeechPipeline
    transcription: TranscriptionPipeline
    listening: ListeningPipeline
    chat: ChatPipeline
    sockets: SocketRegistry
    webhooks: Webhooks
    reports: Reports = field(default_factory=OwnReports)  # what GET /metrics shows
