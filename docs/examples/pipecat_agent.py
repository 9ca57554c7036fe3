"""A voice agent of Pipecat, on the models of this service, for one client of its WebSocket.

pip install "pipecat-ai[openai]>=1.14"
ANTIPHON_KEY=sk_… python docs/examples/pipecat_agent.py            ws://localhost:8765
"""

import asyncio
import os
from typing import Any

from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.transports.websocket.server import (
    SingleClientWebsocketServerParams,
    SingleClientWebsocketServerTransport,
)
from pipecat.workers.runner import WorkerRunner

SERVICE = os.environ.get("ANTIPHON_URL") or os.environ.get("SERVICE", "http://127.0.0.1:8000")
PORT = int(os.environ.get("AGENT_PORT", "8765"))
KEY = os.environ["ANTIPHON_KEY"]
INSTRUCTIONS = "You are a concierge. Be brief."
WEATHER = FunctionSchema(
    "weather", "The weather of a city", {"city": {"type": "string"}}, required=["city"]
)


async def weather(params: Any) -> None:
    await params.result_callback(f"fine in {params.arguments['city']}")


def of_one_socket(transport: Any, context: LLMContext) -> Pipeline:
    """The service detects turns, transcribes them, answers and speaks."""
    service = OpenAIRealtimeLLMService(
        api_key=KEY,
        base_url=SERVICE.replace("http", "ws", 1) + "/openai/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model="gpt-realtime", system_instruction=INSTRUCTIONS
        ),
    )
    service.register_function("weather", weather)
    pair = LLMContextAggregatorPair(context, realtime_service_mode=True)
    return Pipeline([transport.input(), pair.user(), service, transport.output(), pair.assistant()])


def of_parts(transport: Any, context: LLMContext) -> Pipeline:
    """Pipecat runs the conversation; any part may be replaced by another service."""
    url = f"{SERVICE}/openai/v1"
    stt = OpenAIRealtimeSTTService(
        api_key=KEY,
        base_url=url.replace("http", "ws", 1) + "/realtime",
        turn_detection={"type": "server_vad"},  # says when the user has finished
    )
    llm = OpenAILLMService(
        api_key=KEY,
        base_url=url,
        settings=OpenAILLMService.Settings(
            model="svc/slm-3b-int4", system_instruction=INSTRUCTIONS
        ),
    )
    llm.register_function("weather", weather)
    settings = OpenAITTSService.Settings(model="tts-1", voice="alloy")
    tts = OpenAITTSService(api_key=KEY, base_url=url, settings=settings)
    pair = LLMContextAggregatorPair(context)
    parts = [stt, pair.user(), llm, tts]
    return Pipeline([transport.input(), *parts, transport.output(), pair.assistant()])


async def main() -> None:
    transport = SingleClientWebsocketServerTransport(
        SingleClientWebsocketServerParams(
            serializer=ProtobufFrameSerializer(), audio_in_enabled=True, audio_out_enabled=True
        ),
        port=PORT,
    )
    context = LLMContext(tools=ToolsSchema(standard_tools=[WEATHER]))
    made = of_parts if os.environ.get("PARTS") else of_one_socket
    worker = PipelineWorker(
        made(transport, context),
        params=PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000),
        idle_timeout_secs=None,
    )

    @transport.event_handler("on_client_connected")  # type: ignore[untyped-decorator]
    async def greet(_transport: Any, _client: Any) -> None:
        await worker.queue_frames([LLMRunFrame()])

    runner = WorkerRunner()
    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    asyncio.run(main())
