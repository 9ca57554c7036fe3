"""Arguments of the applications and deployments in `serve_config.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import StrictModel

AUTO = "auto"
"""Value of `model`: the deployment waits for the weights of its `wanted` model. For a chat
deployment, `configs/default_chat.yaml` or CHAT_MODEL sets `wanted`."""

Build = Annotated[str, Field(coerce_numbers_to_str=True)]
"""Text or number. Change it after an edit of the code, to restart all deployments."""


class CanaryConfig(StrictModel):
    """A new model that each replica loads beside the current one, for a share of the requests."""

    model: str
    share: Annotated[float, Field(gt=0, le=1)] = 0.1


class ModelUserConfig(StrictModel):
    """`user_config` of a model deployment: edit it and `antiphon deploy` to swap the model."""

    # Path under configs/ without .yaml, such as "tts/kokoro", any path that ends in .yaml, or AUTO.
    model: str
    wanted: str | None = None  # what AUTO stands for once its weights are here
    canary: CanaryConfig | None = None  # when it becomes the `model`, it is not loaded again
    attempt: int = 0  # incremented by `antiphon deploy` to try a refused model again

    @property
    def models(self) -> tuple[str, ...]:
        named = (self.model,) if self.canary is None else (self.model, self.canary.model)
        return tuple(name for name in named if name != AUTO)


class DefaultChatModel(StrictModel):
    """A chat model, and the free memory that it needs in addition to `own_gb`."""

    model: str
    free_gb: float = Field(ge=0)


class DefaultChatConfig(StrictModel):
    """`configs/default_chat.yaml`."""

    own_gb: float = Field(ge=0)  # what the service needs without a chat model
    models: tuple[DefaultChatModel, ...] = Field(min_length=1)  # best first
    better: tuple[DefaultChatModel, ...] = ()

    def fits(self, option: DefaultChatModel, free_gb: float) -> bool:
        return self.own_gb + option.free_gb <= free_gb

    def better_than(self, model: str, free_gb: float) -> list[DefaultChatModel]:
        """Return the models that fit and are better than `model`, the best last. If `model` is in
        neither list, only those of `better` count as better."""
        ranked = [*reversed(self.models), *self.better]
        names = [option.model for option in ranked]
        rank = names.index(model) + 1 if model in names else len(self.models)
        return [option for option in ranked[rank:] if self.fits(option, free_gb)]


class ModelsArgs(StrictModel):
    """`args` of the application `models`: the names of its deployments by kind."""

    tts: tuple[str, ...] = ()
    stt: tuple[str, ...] = ()
    chat: tuple[str, ...] = ()
    embedding: tuple[str, ...] = ()
    build: Build = ""

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """The names of the deployments by kind of engine."""
        return {"tts": self.tts, "stt": self.stt, "chat": self.chat, "embedding": self.embedding}


class WorkerArgs(StrictModel):
    """`args` of the application `worker`."""

    models_app: str = "models"  # the application that collects its metrics
    build: Build = ""


class GatewayArgs(WorkerArgs):
    """`args` of the application `gateway`."""

    # "own": a uvicorn server in the replica. "serve": Serve's HTTP proxy.
    server: Literal["own", "serve"] = "own"
