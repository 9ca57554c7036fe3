"""Groups of services for routes and socket handlers, and their construction. Code below the
handlers takes the objects that it needs, never a group."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from api.http.admission import AdmissionControl, BodySpace, Take
from api.http.limits import RequestLimits
from api.openai.names import OpenAINames
from api.openai.realtime.calls.registry import Calls
from api.sockets.kernel.registry import SocketRegistry
from configs.load import load_yaml
from configs.plans import load_plans
from configs.schema.correction import CorrectionConfig
from configs.schema.jobs import JobsConfig
from configs.schema.platform import AdmissionConfig, PlansConfig, SocketLimits
from configs.schema.transcription import ListeningConfig, load_profiles
from configs.schema.voices import ConsentConfig, CustomVoicesConfig, OpenAIConfig, VoicesConfig
from configs.settings import PlanChanges, Settings
from db.database import Database
from models.base import ModelInfo
from models.grammar_check.base import GrammarEngine
from models.speaker.base import SpeakerEncoder
from models.turn_detection.base import TurnDetectionEngine
from models.vad.base import VADEngine
from models.watermark.base import Watermark
from pipelines.accounts.client_secrets import ClientSecrets
from pipelines.accounts.service import Accounts
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.watermarking import Watermarker
from pipelines.billing.billing import Billing
from pipelines.billing.idempotency import IdempotencyStore
from pipelines.billing.subscriptions import Subscriptions
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatPipeline
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.correction.rules import CorrectionRules
from pipelines.embedding.pipeline import EmbeddingPipeline
from pipelines.jobs.jobs import Jobs
from pipelines.limits.limits import SharedLimits
from pipelines.maintenance.erasure import AccountErasure
from pipelines.ports import Arrival, ChatModel, EmbeddingModel, ModelList, STTModel, TTSModel
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.stt.file import TranscriptionPipeline
from pipelines.stt.paid import PaidTranscription
from pipelines.stt.session import LiveTranscriptionPipeline
from pipelines.tasks import TtlCache
from pipelines.tts.dictionaries import Dictionaries
from pipelines.tts.history import SpeechHistory
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.voices import ReadyCustomVoices
from pipelines.voices.checks import SampleChecker
from pipelines.voices.consent import Consent
from pipelines.voices.consent_recordings import ConsentRecordings
from pipelines.voices.library import VoiceLibrary
from pipelines.voices.service import CustomVoices
from pipelines.voices.speakers import Speakers
from pipelines.voices.voice_settings import VoiceSettingsStore
from pipelines.webhooks.payments import PaymentSystem
from pipelines.webhooks.registration import Webhooks
from telemetry.reports import OwnReports


@dataclass(frozen=True, slots=True)
class SpeechServices:
    """Text to speech and speech to text, over HTTP and WebSockets."""

    synthesis: PaidSynthesis
    transcription: PaidTranscription
    live_transcription: LiveTranscriptionPipeline
    watermarks: Watermarker
    decoder: AudioDecoder
    billing: Billing
    openai: OpenAINames
    dictionaries: Dictionaries
    history: SpeechHistory
    speakers: Speakers
    voice_settings: VoiceSettingsStore
    jobs: Jobs
    check_url: Callable[[str], None]  # raises InvalidUrl for a URL that may not be fetched
    fetch: Callable[[str, Path, int, Take], Coroutine[Any, Any, None]]
    """Downloads a URL to a file of limited size (bytes); calls `Take` for each piece."""


@dataclass(frozen=True, slots=True)
class ChatServices:
    completions: ChatPipeline
    correction: CorrectionPipeline
    history: ChatHistory
    embeddings: EmbeddingPipeline


@dataclass(frozen=True, slots=True)
class VoiceServices:
    custom: CustomVoices
    library: VoiceLibrary
    consents: ConsentRecordings


@dataclass(frozen=True, slots=True)
class PlatformServices:
    """Accounts, plans, billing and webhooks."""

    accounts: Accounts
    client_secrets: ClientSecrets
    erasure: AccountErasure
    plans: PlansConfig
    subscriptions: Subscriptions
    billing: Billing
    webhooks: Webhooks
    request_limits: RequestLimits
    plan_changes: PlanChanges = "self"
    payments: PaymentSystem | None = None  # confirms plan changes, if configured


class ClusterControl(Protocol):
    """Operator's control of the cluster. Its methods may raise ApiError(unavailable)."""

    links: dict[str, str]  # URLs of other programs' pages, by name

    async def running(self) -> str:
        """Returns the running configuration as YAML."""

    async def failures(self) -> dict[str, str]:
        """Returns why deployments do not start, by name, as far as it is known."""

    async def deploy(self, config: str, *, only_check: bool) -> tuple[bool, str]:
        """Deploys YAML; returns success and a report of the changes. Raises InvalidRequest."""


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
    uploads: BodySpace
    bodies: BodySpace  # for JSON
    sockets: SocketRegistry
    calls: Calls
    reports: OwnReports = field(default_factory=OwnReports)  # metrics for GET /metrics
    # How each process differs from the majority of the cluster, by process.
    differences: Mapping[str, str] = field(default_factory=dict)
    cluster: ClusterControl | None = None
    # Probes within a second share one ping, so that a flood of them does not fill the database.
    pings: TtlCache[None, None] = field(default_factory=lambda: TtlCache(1.0, 1))


@dataclass(frozen=True, slots=True)
class Services:
    """All groups of services; their models are Serve handles, or local engines in tests."""

    speech: SpeechServices
    chat: ChatServices
    voices: VoiceServices
    platform: PlatformServices
    infrastructure: InfrastructureServices


@dataclass(frozen=True, slots=True)
class Models:
    """Models that pipelines call. The mappings may change while the services exist. Callables are
    called in threads; the first call may load the model."""

    speakers: Mapping[str, TTSModel]
    transcribers: Mapping[str, STTModel]
    transcriber: STTModel  # answers all requests
    chat_models: Mapping[str, ChatModel]
    vad: VADEngine  # for files
    live_vad: VADEngine
    turn_detector: Callable[[], TurnDetectionEngine]
    speaker_encoder: Callable[[], SpeakerEncoder]
    grammar: Callable[[], GrammarEngine]  # called only once
    embedders: Mapping[str, EmbeddingModel] = field(default_factory=dict)
    watermark: Watermark | None = None  # None: speech is not marked
    problems: Mapping[str, str] = field(default_factory=dict)  # failed swaps, by deployment
    infos: Mapping[str, ModelInfo] = field(default_factory=dict)  # by deployment, even while down
    arrivals: Mapping[str, Arrival] = field(default_factory=dict)  # by deployment


def build_services(
    settings: Settings,
    models: Models,
    decoder: AudioDecoder | None = None,
    limits: SharedLimits | None = None,
) -> Services:
    """Builds all services without waiting for models: a route answers 503 until its model is up. A
    `decoder` is closed by its caller. Without `limits`, only this process's requests count."""
    limits = limits or SharedLimits()
    decoder = decoder or AudioDecoder()
    plans = load_plans(settings)
    admission = load_yaml(AdmissionConfig, "admission")
    jobs = load_yaml(JobsConfig, "jobs")
    custom_voices = load_yaml(CustomVoicesConfig, "custom_voices")
    correction = load_yaml(CorrectionConfig, "correction")

    checker = partial(SampleChecker, decoder, models.vad, models.speaker_encoder)

    database = Database(settings.database_url)
    encryption = Encryption(settings.secrets.data_keys)
    files = Files(settings, database, encryption)
    accounts = Accounts(database, settings.secrets, plans, settings.sign_up)
    billing = Billing(
        database,
        plans.prices,
        encryption.encrypt_text,
        limits,
        free_workspace_id=plans.free_workspace_id,
    )
    webhooks = Webhooks(database, encryption, settings)
    openai = load_yaml(OpenAIConfig, "openai")
    usual_names = (DEFAULT_MODEL, *openai.chat_models)
    model_list = ModelList(
        models.speakers,
        models.transcribers,
        models.chat_models,
        models.embedders,
        problems=models.problems,
        infos=models.infos,
        arrivals=models.arrivals,
        chats=models.chat_models,
        usual_names=usual_names,
    )
    sockets = SocketRegistry(
        load_yaml(SocketLimits, "sockets"), accounts.authenticator, plans, limits, admission.sockets
    )

    ready_voices = ReadyCustomVoices(database, files, models.speakers)
    watermarks = Watermarker(settings.watermark, models.watermark, models.vad)
    dictionaries = Dictionaries(database, encryption)
    synthesis = SpeechPipeline(
        models.speakers, load_yaml(VoicesConfig, "voices"), ready_voices, watermarks, dictionaries
    )
    usual_languages = synthesis.directory.usual_languages
    transcription = TranscriptionPipeline(
        models.transcriber, decoder, models.vad, load_profiles(), usual_languages
    )
    consent = Consent(
        encryption,
        load_yaml(ConsentConfig, "consent"),
        models.transcriber,
        settings.require_consent,
    )
    custom = CustomVoices(
        database,
        files,
        billing,
        plans,
        custom_voices,
        checker(custom_voices.samples),
        checker(custom_voices.clips),
        models.transcriber,
        synthesis.directory,
        ready_voices,
        consent,
    )
    history = ChatHistory(database, encryption, plans)
    completions = ChatPipeline(models.chat_models, history, billing, models.infos, usual_names)
    return Services(
        speech=SpeechServices(
            synthesis=PaidSynthesis(synthesis, billing, files, webhooks.events),
            transcription=PaidTranscription(transcription, billing, webhooks.events),
            live_transcription=LiveTranscriptionPipeline(
                models.transcriber,
                models.live_vad,
                load_yaml(ListeningConfig, "listening"),
                models.turn_detector,
                usual_languages,
            ),
            watermarks=watermarks,
            decoder=decoder,
            billing=billing,
            openai=OpenAINames(openai, model_list, synthesis.directory),
            dictionaries=dictionaries,
            history=SpeechHistory(database, encryption, files),
            speakers=Speakers(
                database, encryption, billing, checker(custom_voices.speakers), consent
            ),
            voice_settings=VoiceSettingsStore(database),
            jobs=Jobs(database, files, billing, jobs, plans),
            check_url=webhooks.check,
            fetch=webhooks.fetch,
        ),
        chat=ChatServices(
            completions=completions,
            correction=CorrectionPipeline(
                completions,
                lambda: CorrectionRules(models.grammar(), correction),
                history,
                billing,
                correction,
            ),
            history=history,
            embeddings=EmbeddingPipeline(models.embedders, billing, models.infos),
        ),
        voices=VoiceServices(
            custom=custom,
            library=VoiceLibrary(custom, encryption),
            consents=ConsentRecordings(
                database, encryption, billing, checker(custom_voices.consents), consent
            ),
        ),
        platform=PlatformServices(
            accounts=accounts,
            client_secrets=ClientSecrets(
                database,
                accounts.authenticator,
                settings.secrets.api_key_pepper,
                encryption.encrypt,
                encryption.decrypt,
            ),
            erasure=AccountErasure(database, accounts.authenticator, files, ready_voices),
            plans=plans,
            subscriptions=Subscriptions(database, plans, accounts.authenticator),
            billing=billing,
            webhooks=webhooks,
            request_limits=RequestLimits(plans, limits, admission),
            plan_changes=settings.plan_changes,
            payments=PaymentSystem(settings.plan_webhook) if settings.plan_webhook else None,
        ),
        infrastructure=InfrastructureServices(
            settings=settings,
            database=database,
            files=files,
            idempotency=IdempotencyStore(
                database, encryption, files, settings.secrets.api_key_pepper, limits
            ),
            models=model_list,
            limits=limits,
            admission=AdmissionControl(admission),
            uploads=BodySpace(admission.uploads_mb * 2**20, "uploads", files.space.check),
            bodies=BodySpace(admission.json_mb * 2**20, "bodies"),
            sockets=sockets,
            calls=Calls(settings.webrtc),
        ),
    )
