"""The Serve applications: the whole graph on one screen.

Serve reads the builders' argument types, so annotations here stay real objects. Scaling lives in
`serve_config.yaml`, not here.
"""

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
    """The application `models`: one deployment a model, none with a route."""
    kinds = ((TTSDeployment, args.tts), (STTDeployment, args.stt), (ChatDeployment, args.chat))
    models = [serve.deployment(name=name)(cls).bind() for cls, names in kinds for name in names]
    return serve.deployment(name="ModelIndex")(ModelIndex).bind(args, *models)


def build_gateway(args: GatewayArgs) -> Application:
    """The application `gateway`: HTTP and WebSockets."""
    gateway = serve.ingress()(Gateway) if args.server == "serve" else Gateway
    # Not left to `serve_config.yaml`: several replicas would each count a part.
    limiter = serve.deployment(
        name="Limiter",
        num_replicas=1,
        max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.2,
    )(Limiter).bind()
    application: Application = serve.deployment(name="Gateway")(gateway).bind(args, limiter)
    return application


def build_courier(args: WorkerArgs) -> Application:
    """The application `courier`: delivery of webhooks, and housekeeping."""
    application: Application = serve.deployment(name="Courier")(Courier).bind(args)
    return application


def build_voices(args: WorkerArgs) -> Application:
    """The application `voices`: jobs that make custom voices."""
    application: Application = serve.deployment(name="VoiceClone")(VoiceClone).bind(args)
    return application
