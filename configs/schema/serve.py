"""Arguments of the applications and deployments in `serve_config.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import StrictModel

Build = Annotated[str, Field(coerce_numbers_to_str=True)]
"""Change it to restart all deployments after an edit of the code: a text, or a number."""


class CanaryConfig(StrictModel):
    """A new model that each replica loads beside the other, for a share of the requests."""

    model: str
    share: Annotated[float, Field(gt=0, le=1)] = 0.1


class ModelUserConfig(StrictModel):
    """`user_config` of a model deployment: edit it and `operator deploy` to swap the model."""

    model: str  # path under configs/ without .yaml, such as "tts/kokoro", or any path with it
    canary: CanaryConfig | None = None  # once it is `model`, it takes all traffic without a load
    attempt: int = 0  # counted by `operator deploy`, so that a refused model is tried again

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,) if self.canary is None else (self.model, self.canary.model)


class ModelsArgs(StrictModel):
    """`args` of the application `models`: the names of its deployments by kind."""

    tts: tuple[str, ...] = ()
    stt: tuple[str, ...] = ()
    chat: tuple[str, ...] = ()
    build: Build = ""


class WorkerArgs(StrictModel):
    """`args` of the application `worker`."""

    models_app: str = "models"  # the application that collects its metrics
    build: Build = ""


class GatewayArgs(WorkerArgs):
    """`args` of the application `gateway`."""

    # "own": a uvicorn server in the replica. "serve": Serve's HTTP proxy.
    server: Literal["own", "serve"] = "own"
