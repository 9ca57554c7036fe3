"""Builds the services over the models: handles in the service, local engines in tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from api.http.admission import InFlight
from api.services import Services
from api.sockets.kernel.leases import SocketLeases
from api.sockets.kernel.registry import SocketRegistry
from configs.load import load_yaml
from configs.schema.admission import AdmissionConfig
from configs.schema.consent import ConsentConfig
from configs.schema.correction import CorrectionConfig
from configs.schema.custom_voices import CloningConfig
from configs.schema.listening import ListeningConfig
from configs.schema.openai import OpenAIConfig
from configs.schema.plans import PlansConfig
from configs.schema.sockets import load_socket_limits
from configs.schema.transcription import load_profiles
from configs.schema.voices import VoicesConfig
from configs.settings import Settings
from db.session import Database
from models.grammar_check.base import GrammarEngine
from models.speaker.base import SpeakerEncoder
from models.vad.base import VADEngine
from models.watermark.base import Watermark
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
from pipelines.correction.rules import load_rules
from pipelines.limits.shared import SharedLimits
from pipelines.model_list import ModelList
from pipelines.ports import ChatModel, STTModel, TTSModel
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.stt.file import TranscriptionPipeline
from pipelines.stt.live_pipeline import LiveTranscriptionPipeline
from pipelines.tts.custom_voices import ReadyCustomVoices
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.voices.checks import SampleChecker
from pipelines.voices.consent import Consent
from pipelines.voices.service import CustomVoices
from pipelines.webhooks.registration import Webhooks


@dataclass(frozen=True, slots=True)
class Models:
    """What the pipelines call. The mappings may change while the services live."""

    speakers: Mapping[str, TTSModel]
    transcribers: Mapping[str, STTModel]
    transcriber: STTModel  # the one that is used
    chat_models: Mapping[str, ChatModel]
    vad: VADEngine  # of files
    live_vad: VADEngine
    speaker_encoder: Callable[[], SpeakerEncoder]  # called in threads; may load it at the first
    grammar: Callable[[], GrammarEngine]  # called once, in a thread; loads it
    watermark: Watermark | None = None  # None where nothing is marked


def build_services(
    settings: Settings,
    models: Models,
    decoder: AudioDecoder | None = None,
    limits: SharedLimits | None = None,
) -> Services:
    """Nothing here waits for a model: routes answer 503 until their model is up.

    Who gives a `decoder` closes it; another starts its processes only when audio comes. Without
    `limits` this process counts for itself.
    """
    limits = limits or SharedLimits()
    admission = load_yaml(AdmissionConfig, "admission")
    database = Database(settings.database_url)
    sealer = Encryption(settings.secrets.data_keys)
    plans = load_yaml(PlansConfig, "plans")
    billing = Billing(database, plans.prices, sealer.seal_text)
    accounts = Accounts(database, settings.secrets, plans)
    chats = ChatHistory(database, sealer)
    files = Files.of(settings, database, sealer)
    decoder = decoder or AudioDecoder()
    own_voices = ReadyCustomVoices(database, files, models.speakers)
    marks = Marks(settings.watermark, models.watermark, models.vad)
    speech = SpeechPipeline(models.speakers, load_yaml(VoicesConfig, "voices"), own_voices, marks)
    cloning = load_yaml(CloningConfig, "cloning")
    correction = load_yaml(CorrectionConfig, "correction")
    chat = ChatPipeline(models.chat_models, chats, billing)
    checker = SampleChecker(decoder, models.vad, models.speaker_encoder, cloning.samples)
    return Services(
        settings=settings,
        plans=plans,
        database=database,
        accounts=accounts,
        billing=billing,
        subscriptions=Subscriptions(database, plans, accounts),
        files=files,
        answers=IdempotencyStore(database, sealer, files, settings.secrets.api_key_pepper),
        workspaces=Workspaces(database, accounts, files, own_voices),
        models=ModelList(models.speakers, models.transcribers, models.chat_models),
        speech=speech,
        marks=marks,
        decoder=decoder,
        transcription=TranscriptionPipeline(
            models.transcriber, decoder, models.vad, load_profiles()
        ),
        listening=LiveTranscriptionPipeline(
            models.transcriber, models.live_vad, load_yaml(ListeningConfig, "listening")
        ),
        chat=chat,
        chats=chats,
        correction=CorrectionPipeline(
            chat,
            lambda: load_rules(models.grammar(), correction),
            chats,
            billing,
            correction,
        ),
        sockets=SocketRegistry(
            load_socket_limits(), accounts, SocketLeases(plans, limits, admission.sockets)
        ),
        limits=limits,
        admission=admission,
        in_flight=InFlight(admission),
        webhooks=Webhooks(database, sealer, settings),
        voices=CustomVoices(
            database,
            files,
            billing,
            plans,
            cloning,
            checker,
            models.transcriber,
            speech,
            own_voices,
            Consent(sealer, load_yaml(ConsentConfig, "consent"), models.transcriber),
            settings.require_consent,
        ),
        openai=load_yaml(OpenAIConfig, "openai"),
    )
