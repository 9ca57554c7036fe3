"""Services over engines without weights and a migrated database."""

from api.services import Services
from api.sockets.registry import SocketRegistry
from configs.listening_schema import ListeningConfig
from configs.load import load_yaml
from configs.plans_schema import PlansConfig
from configs.settings import Settings
from configs.sockets_schema import load_socket_limits
from configs.transcription_schema import load_profiles
from configs.voices_schema import VoicesConfig
from db.migrate import upgrade
from db.session import Database
from models.loading import load_chat, load_stt, load_tts, load_vad
from models.weights.store import WeightStore
from pipelines.accounts import Accounts
from pipelines.chat import ChatPipeline
from pipelines.chat_history import ChatHistory
from pipelines.decoding import AudioDecoder
from pipelines.listening import ListeningPipeline
from pipelines.local import LocalChatModel, LocalSpeaker, LocalTranscriber
from pipelines.model_list import ModelList
from pipelines.speech import SpeechPipeline
from pipelines.transcription import TranscriptionPipeline


def local_services(settings: Settings, decoder: AudioDecoder | None = None) -> Services:
    """The tone, scripted and echo engines behind the real pipelines.

    Who gives a `decoder` closes it; another starts its processes only when audio comes.
    """
    weights = WeightStore(settings.weights_dir)
    speakers = {"tone": LocalSpeaker(*load_tts("tts/tone", weights))}
    transcribers = {"scripted": LocalTranscriber(*load_stt("stt/scripted", weights))}
    chat_models = {"echo": LocalChatModel(*load_chat("llm/echo", weights))}
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    listening = load_yaml(ListeningConfig, "listening")
    plans = load_yaml(PlansConfig, "plans")
    accounts = Accounts(database, settings.secrets, plans.first.id)
    return Services(
        settings=settings,
        plans=plans,
        database=database,
        accounts=accounts,
        models=ModelList(speakers, transcribers, chat_models),
        speech=SpeechPipeline(speakers, load_yaml(VoicesConfig, "voices")),
        transcription=TranscriptionPipeline(
            transcribers["scripted"],
            decoder or AudioDecoder(),
            load_vad("vad/webrtc", weights),
            load_profiles(),
        ),
        listening=ListeningPipeline(
            transcribers["scripted"], load_vad(listening.vad, weights), listening
        ),
        chat=ChatPipeline(chat_models, ChatHistory(database)),
        sockets=SocketRegistry(load_socket_limits(), plans, accounts),
    )
