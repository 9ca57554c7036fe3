"""All that the routes can reach."""

from dataclasses import dataclass, field

from api.in_flight import InFlight
from api.sockets.registry import SocketRegistry
from configs.admission_schema import AdmissionConfig
from configs.metrics_reports import OwnReports, Reports
from configs.openai_schema import OpenAIConfig
from configs.plans_schema import PlansConfig
from configs.settings import Settings
from db.session import Database
from pipelines.accounts import Accounts
from pipelines.answers import Answers
from pipelines.billing import Billing
from pipelines.chat import ChatPipeline
from pipelines.chat_history import ChatHistory
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.decoding import AudioDecoder
from pipelines.files import Files
from pipelines.limits_shared import SharedLimits
from pipelines.listening import ListeningPipeline
from pipelines.marking import Marks
from pipelines.model_list import ModelList
from pipelines.speech import SpeechPipeline
from pipelines.subscriptions import Subscriptions
from pipelines.transcription import TranscriptionPipeline
from pipelines.voices import Voices
from pipelines.webhooks.registration import Webhooks
from pipelines.workspaces import Workspaces


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
    answers: Answers
    workspaces: Workspaces
    models: ModelList
    speech: SpeechPipeline
    marks: Marks
    decoder: AudioDecoder
    transcription: TranscriptionPipeline
    listening: ListeningPipeline
    chat: ChatPipeline
    chats: ChatHistory
    correction: CorrectionPipeline
    sockets: SocketRegistry
    limits: SharedLimits
    admission: AdmissionConfig
    in_flight: InFlight
    webhooks: Webhooks
    voices: Voices
    openai: OpenAIConfig
    reports: Reports = field(default_factory=OwnReports)  # what GET /metrics shows
