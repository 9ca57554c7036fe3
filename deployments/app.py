"""The builders of the Serve applications.

Serve reads the types of the builders' arguments, so annotations here must be real objects. Scaling
is configured in `serve_config.yaml`.
"""

from typing import Any

from ray import serve
from ray.serve import Application

from configs.schema.serve import GatewayArgs, ModelsArgs, WorkerArgs
from deployments.gateway.model_index import ModelIndex
from deployments.gateway.replica import Gateway
from deployments.gateway.wyoming import Wyoming
from deployments.leased_work.worker import Worker
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.embedding import EmbeddingDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment

KINDS = {
    "tts": TTSDeployment,
    "stt": STTDeployment,
    "chat": ChatDeployment,
    "embedding": EmbeddingDeployment,
}


def build_models(args: ModelsArgs) -> Application:
    """Build the application `models`: one deployment per model, none with a route."""
    models = [_bind(name, KINDS[kind]) for kind, names in args.by_kind.items() for name in names]
    index = serve.deployment(
        name="ModelIndex",
        num_replicas=1,  # with several, each would count only a part of the requests
        max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=2,
        health_check_timeout_s=10,
    )(ModelIndex)
    application: Application = index.bind(args, *models)
    return application


def build_gateway(args: GatewayArgs) -> Application:
    """Build the application `gateway`: HTTP and WebSockets."""
    gateway = serve.ingress()(Gateway) if args.server == "serve" else Gateway
    return _bind("Gateway", gateway, args)


def build_wyoming(args: WorkerArgs) -> Application:
    """Build the application `wyoming`: Home Assistant's protocol on a port of its own."""
    return _bind("Wyoming", Wyoming, GatewayArgs.model_validate(args.model_dump()))


def build_worker(args: WorkerArgs) -> Application:
    """Build the application `worker`: webhooks, jobs that build custom voices, and housekeeping."""
    return _bind("Worker", Worker, args)


def _bind(name: str, kind: Any, *arguments: object) -> Application:
    application: Application = serve.deployment(name=name)(kind).bind(*arguments)
    return application
