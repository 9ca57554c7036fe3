"""The response object of the Realtime dialect, and its usage."""

from dataclasses import dataclass, field
from typing import Any, Literal

from api.openai.realtime.server_events import WireItem
from api.openai.realtime.session_object import RealtimeSession

ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]


@dataclass(frozen=True, slots=True)
class RealtimeUsage:
    """Tokens. All input is text to the language model; the cached tokens are part of it."""

    input_text: int = 0
    output_text: int = 0
    output_audio: int = 0
    cached_text: int = 0

    def as_json(self) -> dict[str, Any]:
        written = self.output_text + self.output_audio
        no_others = {"audio_tokens": 0, "image_tokens": 0}
        return {
            "total_tokens": self.input_text + written,
            "input_tokens": self.input_text,
            "output_tokens": written,
            "input_token_details": {
                "text_tokens": self.input_text,
                "cached_tokens": self.cached_text,
                "cached_tokens_details": {"text_tokens": self.cached_text, **no_others},
                **no_others,
            },
            "output_token_details": {
                "text_tokens": self.output_text,
                "audio_tokens": self.output_audio,
            },
        }


@dataclass(slots=True)
class RealtimeResponse:
    """One answer. `session` has the response's own options applied.

    `conversation_id` is None for a response outside the conversation. `metadata` is shown again
    from `response.created` on: clients match it with their own requests.
    """

    id: str
    session: RealtimeSession
    conversation_id: str | None
    metadata: dict[str, str] | None = None
    status: ResponseStatus = "in_progress"
    status_details: dict[str, Any] | None = None
    output: list[WireItem] = field(default_factory=list)
    usage: RealtimeUsage = RealtimeUsage()

    def end(self, status: ResponseStatus, **details: Any) -> None:
        """`details`: the `reason` of one that is cancelled or incomplete, the `error` of a failed
        one."""
        self.status = status
        self.status_details = {"type": status, **details} if details else None

    def as_json(self) -> dict[str, Any]:
        output = self.session.audio.output
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": self.status,
            "status_details": self.status_details,
            "output": self.output,
            "conversation_id": self.conversation_id,
            "output_modalities": self.session.output_modalities,
            "max_output_tokens": self.session.max_output_tokens,
            "audio": {"output": {"format": output.format.as_json(), "voice": output.voice}},
            # Clients read it from every response that ended, however it ended.
            "usage": None if self.status == "in_progress" else self.usage.as_json(),
            "metadata": self.metadata,
        }
