"""A voice agent in rooms of LiveKit, on the models of this service.

pip install "livekit-agents>=1.8" "livekit-plugins-openai>=1.8"
ANTIPHON_KEY=sk_… python docs/examples/livekit_agent.py console

`dev` in place of `console`, with LIVEKIT_URL and its keys, joins rooms.
"""

import os
from typing import Any

from livekit import agents
from livekit.plugins import openai

SERVICE = os.environ.get("ANTIPHON_URL") or os.environ.get("SERVICE", "http://127.0.0.1:8000")
WHERE: dict[str, Any] = {
    "base_url": f"{SERVICE}/openai/v1",
    "api_key": os.environ["ANTIPHON_KEY"],
}
server = agents.AgentServer()


class Concierge(agents.Agent):
    def __init__(self) -> None:
        super().__init__(instructions="You are a concierge. Be brief.")

    @agents.function_tool
    async def weather(self, city: str) -> str:
        """The weather of a city."""
        return f"fine in {city}"


def of_one_socket() -> agents.AgentSession:
    """The service detects turns, transcribes them, answers and speaks."""
    model = openai.realtime.RealtimeModel(model="gpt-realtime", voice="alloy", **WHERE)
    return agents.AgentSession(llm=model)


def of_parts() -> agents.AgentSession:
    """LiveKit runs the conversation; any part may be replaced by another plugin."""
    return agents.AgentSession(
        stt=openai.STT(use_realtime=True, model="whisper-1", **WHERE),
        llm=openai.LLM(model="svc/slm-3b-int4", **WHERE),
        tts=openai.TTS(model="tts-1", voice="alloy", **WHERE),
        # The STT says when the user has finished.
        turn_handling={"turn_detection": "stt"},
        vad=None,
    )


@server.rtc_session()
async def entrypoint(context: agents.JobContext) -> None:
    session = of_parts() if os.environ.get("PARTS") else of_one_socket()
    await session.start(agent=Concierge(), room=context.room)
    await session.generate_reply(instructions="Greet the user.")


if __name__ == "__main__":
    agents.cli.run_app(server)
