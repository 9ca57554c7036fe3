"""The services of a gateway: pipelines over handles, and the stores."""

from api.services import Services
from api.sockets.registry import SocketRegistry
from configs.listening_schema import ListeningConfig
from configs.load import load_yaml
from configs.plans_schema import PlansConfig
from configs.settings import Settings
from configs.sockets_schema import load_socket_limits
from configs.transcription_schema import load_profiles
from configs.voices_schema import VoicesConfig
from db.session import Database
from deployments.directory import ModelDirectory
from models.loading import load_vad
from models.weights.store import WeightStore
from pipelines.accounts import Accounts
from pipelines.chat import ChatPipeline
from pipelines.chat_history import ChatHistory
from pipelines.decoding import AudioDecoder
from pipelines.listening import ListeningPipeline
from pipelines.model_list import ModelList
from pipelines.speech import SpeechPipeline
from pipelines.transcription import TranscriptionPipeline

VAD_CONFIG = "vad/silero"


def build_services(settings: Settings, directory: ModelDirectory) -> Services:
    """Nothing here waits for a model: routes answer 503 until their model is up."""
    database = Database(settings.database_url)
    weights = WeightStore(settings.weights_dir)
    listening = load_yaml(ListeningConfig, "listening")
    vad = load_vad(VAD_CONFIG, weights)
    # One instance serves both where they name the same: what it hears lives in its streams.
    live_vad = vad if listening.vad == VAD_CONFIG else load_vad(listening.vad, weights)
    plans = load_yaml(PlansConfig, "plans")
    accounts = Accounts(database, settings.secrets, plans.first.id)
    return Services(
        settings=settings,
        plans=plans,
        database=database,
        accounts=accounts,
        models=ModelList(directory.speakers, directory.transcribers, directory.chat_models),
        speech=SpeechPipeline(directory.speakers, load_yaml(VoicesConfig, "voices")),
        transcription=TranscriptionPipeline(
            directory.transcriber,
            AudioDecoder(),
            vad,
            load_profiles(),
        ),
        listening=ListeningPipeline(directory.transcriber, live_vad, listening),
        chat=ChatPipeline(directory.chat_models, ChatHistory(database)),
        sockets=SocketRegistry(load_socket_limits(), plans, accounts),
    )
