"""The groups of objects that routes and socket handlers work with.

A handler asks for one group, by a dependency of `api.http.deps`. Everything below the handlers
takes the objects that it needs, never a group.
"""

from dataclasses import dataclass, field

from api.http.admission import AdmissionControl
from api.http.rate_limits import RequestLimits
from api.openai.names import OpenAINames
from api.sockets.kernel.registry import SocketRegistry
from configs.schema.platform import PlansConfig
from configs.settings import Settings
from db.database import Database
from pipelines.accounts.service import Accounts
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.watermarking import Watermarker
from pipelines.billing.billing import Billing
from pipelines.billing.idempotency import IdempotencyStore
from pipelines.billing.subscriptions import Subscriptions
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import ChatPipeline
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.limits.shared import SharedLimits
from pipelines.maintenance.erasure import AccountErasure
from pipelines.model_list import ModelList
from pipelines.storage.files import Files
from pipelines.stt.paid import PaidTranscription
from pipelines.stt.session import LiveTranscriptionPipeline
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.voices.service import CustomVoices
from pipelines.webhooks.events import WebhookEvents
from pipelines.webhooks.registration import Webhooks
from telemetry.reports import OwnReports, Reports


@dataclass(frozen=True, slots=True)
class SpeechServices:
    """Text to speech and speech to text, over HTTP and WebSockets."""

    synthesis: PaidSynthesis
    transcription: PaidTranscription
    live_transcription: LiveTranscriptionPipeline
    watermarks: Watermarker
    decoder: AudioDecoder
    billing: Billing
    events: WebhookEvents
    openai: OpenAINames
    sockets: SocketRegistry


@dataclass(frozen=True, slots=True)
class ChatServices:
    """Chat completions, corrections and saved chats."""

    completions: ChatPipeline
    correction: CorrectionPipeline
    history: ChatHistory


@dataclass(frozen=True, slots=True)
class VoiceServices:
    """The voices that a workspace can use, and those that it makes."""

    catalogue: SpeechPipeline
    custom: CustomVoices


@dataclass(frozen=True, slots=True)
class PlatformServices:
    """Accounts, plans, billing and webhooks."""

    accounts: Accounts
    erasure: AccountErasure
    plans: PlansConfig
    subscriptions: Subscriptions
    billing: Billing
    webhooks: Webhooks
    request_limits: RequestLimits


@dataclass(frozen=True, slots=True)
class InfrastructureServices:
    """Stores, settings and the state of this process."""

    settings: Settings
    database: Database
    files: Files
    idempotency: IdempotencyStore
    models: ModelList
    limits: SharedLimits
    admission: AdmissionControl
    sockets: SocketRegistry
    reports: Reports = field(default_factory=OwnReports)  # what GET /metrics shows


@dataclass(frozen=True, slots=True)
class Services:
    """All groups; a test builds them over local engines, the gateway over handles."""

    speech: SpeechServices
    chat: ChatServices
    voices: VoiceServices
    platform: PlatformServices
    infrastructure: InfrastructureServices
