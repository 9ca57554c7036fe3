"""Builds the services over the models: handles in the service, local engines in tests."""

from collections.abc import Mapping
from dataclasses import dataclass

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
from models.vad.base import VADEngine
from pipelines.accounts import Accounts
from pipelines.billing import Billing
from pipelines.chat import ChatPipeline
from pipelines.chat_history import ChatHistory
from pipelines.decoding import AudioDecoder
from pipelines.listening import ListeningPipeline
from pipelines.model_list import ModelList
from pipelines.ports import ChatModel, Speaker, Transcriber
from pipelines.speech import SpeechPipeline
from pipelines.transcription import TranscriptionPipeline


@dataclass(frozen=True, slots=True)
class Models:
    """What the pipelines call. The mappings may change while the services live."""

    speakers: Mapping[str, Speaker]
    transcribers: Mapping[str, Transcriber]
    transcriber: Transcriber  # the one that is used
    chat_models: Mapping[str, ChatModel]
    vad: VADEngine  # of files
    live_vad: VADEngine


def build_services(
    settings: Settings, models: Models, decoder: AudioDecoder | None = None
) -> Services:
    """Nothing here waits for a model: routes answer 503 until their model is up.

    Who gives a `decoder` closes it; another starts its processes only when audio comes.
    """
    database = Database(settings.database_url)
    plans = load_yaml(PlansConfig, "plans")
    accounts = Accounts(database, settings.secrets, plans.first.id)
    return Services(
        settings=settings,
        plans=plans,
        database=database,
        accounts=accounts,
        billing=Billing(database, plans.prices),
        models=ModelList(models.speakers, models.transcribers, models.chat_models),
        speech=SpeechPipeline(models.speakers, load_yaml(VoicesConfig, "voices")),
        transcription=TranscriptionPipeline(
            models.transcriber, decoder or AudioDecoder(), models.vad, load_profiles()
        ),
        listening=ListeningPipeline(
            models.transcriber, models.live_vad, load_yaml(ListeningConfig, "listening")
        ),
        chat=ChatPipeline(models.chat_models, ChatHistory(database)),
        sockets=SocketRegistry(load_socket_limits(), plans, accounts),
    )
