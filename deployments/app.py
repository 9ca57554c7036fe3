"""The builders of the Serve applications.

Serve reads the types of the builders' arguments, so annotations here must be real objects. Scaling
is configured in `serve_config.yaml`.
"""

from typing import Any

from ray import serve
from ray.serve import Application

from configs.schema.serve import GatewayArgs, ModelsArgs, WorkerArgs
from deployments.gateway.replica import Gateway
from deployments.model_index import ModelIndex
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from deployments.voice_jobs.deployment import VoiceClone
from deployments.workers.limiter import Limiter
from deployments.workers.webhooks import Courier


def build_models(args: ModelsArgs) -> Application:
    """The application `models`: one deployment per model, none with a route."""
    kinds = ((TTSDeployment, args.tts), (STTDeployment, args.stt), (ChatDeployment, args.chat))
    models = [_bind(name, kind) for kind, names in kinds for name in names]
    return _bind("ModelIndex", ModelIndex, args, *models)


def build_gateway(args: GatewayArgs) -> Application:
    """The application `gateway`: HTTP and WebSockets."""
    gateway = serve.ingress()(Gateway) if args.server == "serve" else Gateway
    # Not configurable in `serve_config.yaml`: several replicas would each count a part.
    limiter = serve.deployment(
        name="Limiter",
        num_replicas=1,
        max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.2,
    )(Limiter).bind()
    return _bind("Gateway", gateway, args, limiter)


def build_courier(args: WorkerArgs) -> Application:
    """The application `courier`: delivery of webhooks, and housekeeping."""
    return _bind("Courier", Courier, args)


def build_voices(args: WorkerArgs) -> Application:
    """The application `voices`: jobs that build custom voices."""
    return _bind("VoiceClone", VoiceClone, args)


def _bind(name: str, kind: Any, *arguments: object) -> Application:
    application: Application = serve.deployment(name=name)(kind).bind(*arguments)
    return application
