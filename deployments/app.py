"""The builders of the Serve applications, which Serve also calls for `serve deploy`. Scaling is
configured in `serve_config.yaml`. If a builder refuses a configuration, `serve status` shows the
reason, and the running replicas stay."""

from typing import Any, TypeVar

from pydantic import ValidationError
from ray import serve
from ray.serve import Application
from ray.serve.exceptions import RayServeException

from configs.load import explain
from configs.schema.base import StrictModel
from configs.schema.serve import GatewayArgs, ModelsArgs, WorkerArgs
from deployments.cluster.compat import declared_applications
from deployments.gateway.model_index import ModelIndex
from deployments.gateway.replica import Gateway
from deployments.gateway.wyoming import Wyoming
from deployments.leased_work.worker import Worker
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.embedding import EmbeddingDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from deployments.rollout.check import build_problems

KINDS = {
    "tts": TTSDeployment,
    "stt": STTDeployment,
    "chat": ChatDeployment,
    "embedding": EmbeddingDeployment,
}

ArgsT = TypeVar("ArgsT", bound=StrictModel)


def build_models(args: dict[str, Any]) -> Application:
    """Build the application `models`: one deployment per model, none with a route."""
    checked = _checked(ModelsArgs, args)
    models = [
        # An entry without `user_config` gets `{}`, which a new replica cannot load, so that the
        # old replica stays. Without `{}`, Serve would replace it by a replica without a model.
        _bind(name, KINDS[kind], user_config={}, max_surge_percent=100)
        for kind, names in checked.by_kind.items()
        for name in names
    ]
    index = serve.deployment(
        name="ModelIndex",
        num_replicas=1,  # with several, each would count only a part of the requests
        max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=2,
        health_check_timeout_s=10,
    )(ModelIndex)
    application: Application = index.bind(checked, *models)
    return application


def build_gateway(args: dict[str, Any]) -> Application:
    """Build the application `gateway`: HTTP and WebSockets."""
    checked = _checked(GatewayArgs, args)
    gateway = serve.ingress()(Gateway) if checked.server == "serve" else Gateway
    return _bind("Gateway", gateway, checked)


def build_wyoming(args: dict[str, Any]) -> Application:
    """Build the application `wyoming`: Home Assistant's protocol on a port of its own."""
    checked = _checked(WorkerArgs, args)
    return _bind("Wyoming", Wyoming, GatewayArgs.model_validate(checked.model_dump()))


def build_worker(args: dict[str, Any]) -> Application:
    """Build the application `worker`: webhooks, jobs that build custom voices, and housekeeping."""
    return _bind("Worker", Worker, _checked(WorkerArgs, args))


def _checked(shape: type[ArgsT], args: dict[str, Any]) -> ArgsT:
    """Return the validated arguments. Raises RayServeException if they or other parts of their
    deployment are wrong; after any other exception, Serve would call the builder again."""
    try:
        checked = shape.model_validate(args)
    except ValidationError as error:
        raise RayServeException(f"args: {explain(error)}") from None
    if problems := build_problems(declared_applications()):
        raise RayServeException("; ".join(problems))
    return checked


def _bind(name: str, kind: Any, *arguments: object, **options: Any) -> Application:
    application: Application = serve.deployment(name=name, **options)(kind).bind(*arguments)
    return application
