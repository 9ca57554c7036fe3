"""Arguments of the applications and deployments in `serve_config.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import StrictModel

AUTO = "auto"
"""Value of `model`: the deployment waits for the weights of its `wanted` model. For a chat
deployment, `configs/default_chat.yaml` or CHAT_MODEL sets `wanted`."""

Build = Annotated[str, Field(coerce_numbers_to_str=True)]
"""Text or number; a change restarts all deployments after an edit of the code."""


class CanaryConfig(StrictModel):
    """A new model that each replica loads beside the other, for a share of the requests."""

    model: str
    share: Annotated[float, Field(gt=0, le=1)] = 0.1


class ModelUserConfig(StrictModel):
    """`user_config` of a model deployment: edit it and `antiphon deploy` to swap the model."""

    # Path under configs/ without .yaml, such as "tts/kokoro", or any path with it; or AUTO.
    model: str
    wanted: str | None = None  # choice for AUTO: replaces `model` once its weights are here
    canary: CanaryConfig | None = None  # once it is `model`, it takes all traffic without a load
    attempt: int = 0  # counted by `antiphon deploy`, so that a refused model is tried again

    @property
    def models(self) -> tuple[str, ...]:
        named = (self.model,) if self.canary is None else (self.model, self.canary.model)
        return tuple(name for name in named if name != AUTO)


class DefaultChatModel(StrictModel):
    """A chat model, and the free memory beside `own_gb` from which it is chosen."""

    model: str
    free_gb: float = Field(ge=0)


class DefaultChatConfig(StrictModel):
    """`configs/default_chat.yaml`."""

    own_gb: float = Field(ge=0)  # what the service needs without a chat model
    models: tuple[DefaultChatModel, ...] = Field(min_length=1)  # best first
    better: tuple[str, ...] = ()


class ModelsArgs(StrictModel):
    """`args` of the application `models`: the names of its deployments by kind."""

    tts: tuple[str, ...] = ()
    stt: tuple[str, ...] = ()
    chat: tuple[str, ...] = ()
    embedding: tuple[str, ...] = ()
    build: Build = ""

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """The names by the name of their kind of engine."""
        return {"tts": self.tts, "stt": self.stt, "chat": self.chat, "embedding": self.embedding}


class WorkerArgs(StrictModel):
    """`args` of the application `worker`."""

    models_app: str = "models"  # the application that collects its metrics
    build: Build = ""


class GatewayArgs(WorkerArgs):
    """`args` of the application `gateway`."""

    # "own": a uvicorn server in the replica. "serve": Serve's HTTP proxy.
    server: Literal["own", "serve"] = "own"
