"""All that the routes can reach."""

from dataclasses import dataclass, field

from api.http.admission import InFlight
from api.sockets.kernel.registry import SocketRegistry
from configs.schema.admission import AdmissionConfig
from configs.schema.openai import OpenAIConfig
from configs.schema.plans import PlansConfig
from configs.settings import Settings
from db.session import Database
from pipelines.accounts.service import Accounts
from pipelines.accounts.workspaces import Workspaces
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.watermarking import Marks
from pipelines.billing.billing import Billing
from pipelines.billing.idempotency import IdempotencyStore
from pipelines.billing.subscriptions import Subscriptions
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import ChatPipeline
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.limits.shared import SharedLimits
from pipelines.model_list import ModelList
from pipelines.storage.files import Files
from pipelines.stt.file import TranscriptionPipeline
from pipelines.stt.live_pipeline import LiveTranscriptionPipeline
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.voices.service import CustomVoices
from pipelines.webhooks.registration import Webhooks
from telemetry.reports import OwnReports, Reports


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
    answers: IdempotencyStore
    workspaces: Workspaces
    models: ModelList
    speech: SpeechPipeline
    marks: Marks
    decoder: AudioDecoder
    transcription: TranscriptionPipeline
    listening: LiveTranscriptionPipeline
    chat: ChatPipeline
    chats: ChatHistory
    correction: CorrectionPipeline
    sockets: SocketRegistry
    limits: SharedLimits
    admission: AdmissionConfig
    in_flight: InFlight
    webhooks: Webhooks
    voices: CustomVoices
    openai: OpenAIConfig
    reports: Reports = field(default_factory=OwnReports)  # what GET /metrics shows
