"""The ingress deployment: builds the services over Ray handles and serves them over HTTP."""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from configs.schema.serve import GatewayArgs
from deployments.autoscaling import GATEWAY_FULL, load_report
from deployments.cluster.compat import keep_replica_on_loopback
from deployments.cluster.user_config import NoUserConfig
from deployments.gateway.handles import ModelDirectory
from deployments.gateway.model_index import cluster_reports
from models.memory import give_back
from pipelines.tasks import TaskSet

if TYPE_CHECKING:
    from fastapi import FastAPI

    from api.services import Services
    from api.sockets.kernel.registry import SocketRegistry
    from configs.settings import Settings
    from deployments.gateway.listener import Listener

logger = logging.getLogger(__name__)

SOONER_S = 1.0  # sessions end this long before model calls fail, which could close them with 1011
STATUS_S = 3.0  # timeout of a call of serve.status
MODELS_S = 3.0  # interval of checks whether all models are up
MOVE_ON_S = 1.0  # time in which keep-alive clients get a response that closes their connection

# Imports are inside functions, because the process that builds the application imports this module
# too: the web framework would take seconds, and delay the replica's start.


class Gateway(NoUserConfig):
    """Stateless except for open connections; the replicas of a host share a port."""

    corrects = True  # loads what corrections need

    async def __init__(self, args: GatewayArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        keep_replica_on_loopback()
        from api.http.uploads import UPLOAD_FOLDERS
        from configs.settings import load_settings
        from deployments.cluster.shared_stores import open_database, stores_problem
        from deployments.gateway.services import gateway_limits, gateway_services
        from pipelines.storage.files import watch_storage
        from pipelines.temporary_directories import delete_leftover_directories
        from telemetry import metrics
        from telemetry.logs import setup_logs
        from telemetry.tracing import start_tracing

        setup_logs()
        metrics.declare("gateway")
        start_tracing()
        settings = load_settings()
        # `make run` has migrated the database, but `serve run` and rolling updates have not.
        (await open_database(settings, in_cluster=True)).close()
        await asyncio.to_thread(delete_leftover_directories, UPLOAD_FOLDERS)
        self._directory = ModelDirectory(args.models_app, partial(stores_problem, settings))
        reports = cluster_reports(args.models_app)
        self.services: Services = gateway_services(
            settings,
            self._directory,
            reports,
            gateway_limits(settings, self._directory.index),
        )
        infrastructure = self.services.infrastructure
        self._background = TaskSet()
        self._background.start(self._directory.follow())
        self._listener = await self.listen(settings, args)
        infrastructure.limits.start()
        self._background.start(warm_up(self.services, corrects=self.corrects))
        self._background.start(watch_storage(infrastructure.files))
        if reports is not None:
            self._background.start(reports.run())

    async def listen(self, settings: "Settings", args: GatewayArgs) -> "Listener | None":
        """Start the server of this replica; return None if another server calls the application."""
        from api.app import create_app
        from deployments.gateway.listener import HttpListener

        if args.server == "serve":
            return None
        listener = HttpListener(
            create_app(self.services),
            settings.host,
            settings.port,
            settings.trusted_proxies,
            turns=self.services.infrastructure.admission.turns,
        )
        await listener.start()
        return listener

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Report the load to `deployments.autoscaling`; Serve calls this every few seconds."""
        return load_report(self.services.infrastructure.sockets.fullness / GATEWAY_FULL)

    def check_health(self) -> None:
        """Raise an error if the server has stopped; Serve then restarts the replica."""
        if self._listener is not None and not self._listener.serving:
            raise RuntimeError("the server of the replica has ended")

    async def __del__(self) -> None:
        """Drain the replica. Serve awaits this when the replica stops."""
        from deployments.gateway.listener import DRAIN_S, SETTLE_S, STORE_S
        from pipelines.chat.pipeline import wait_for_saves
        from telemetry.tracing import flush

        infrastructure, billing = self.services.infrastructure, self.services.platform.billing
        billing.is_stopping = True
        asyncio.get_running_loop().call_later(DRAIN_S, self._directory.stop.set)
        drained = drain_sockets(infrastructure.sockets)
        if self._listener is not None:
            await self._listener.stop(drained)
        else:
            await drained
        try:
            async with asyncio.timeout(SETTLE_S):
                await wait_for_saves()
                await billing.wait_for_settlements()
        except TimeoutError:
            logger.error("stopped_with_open_holds")  # the holds expire
        try:
            async with asyncio.timeout(STORE_S):
                await self.services.speech.history.join()
        except TimeoutError:
            logger.warning("stopped_with_unstored_speech")  # the history lacks this speech
        self._background.cancel()
        await infrastructure.limits.close()
        await self.services.speech.decoder.close()
        await asyncio.to_thread(infrastructure.database.close)
        await flush()

    def __serve_build_asgi_app__(self) -> "FastAPI":
        """Return the same app for Serve's own HTTP proxy (`server: serve`)."""
        from api.app import create_app

        return create_app(self.services, sees_clients=False)


async def service_stops() -> bool:
    """Whether the whole application is being deleted, so that no replica replaces this one."""
    from ray import serve
    from ray.serve.schema import ApplicationStatus

    try:
        app_name = serve.get_replica_context().app_name
        async with asyncio.timeout(STATUS_S):
            status = await asyncio.to_thread(serve.status)
        application = status.applications.get(app_name)
        return application is None or application.status == ApplicationStatus.DELETING
    except Exception:  # the cluster itself may be shutting down
        logger.warning("status_unknown", exc_info=True)
        return True


async def drain_sockets(sockets: "SocketRegistry") -> None:
    """Let open sessions end within their grace period, then close them with the reason."""
    from api.sockets.kernel import close_codes

    sockets.draining = True  # first, since serve.status may take seconds
    clock = asyncio.get_running_loop().time
    until = clock() + sockets.limits.drain_s - SOONER_S
    if await service_stops():
        await sockets.drain(
            sockets.limits.stop_s,
            close_codes.GOING_AWAY,
            "the service is stopping",
            busy_s=until - clock(),
        )
    else:
        message = "this server restarts; connect again"
        await sockets.drain(until - clock(), close_codes.RESTART, message)
        await asyncio.sleep(MOVE_ON_S)


async def warm_up(services: "Services", *, corrects: bool = True) -> None:
    """Load in advance what the first request of each kind would otherwise wait for."""
    from pipelines.text.normalisation.rewriting import compile_rules

    await _warm_up_planning(services)
    await asyncio.to_thread(compile_rules)
    await services.speech.decoder.start()
    if corrects:
        await services.chat.correction.warm_up()
    logger.info("gateway_warm")
    await wait_for_models(services)
    await _warm_up_planning(services)  # loads the languages of all voices: 240 MB, 2 s
    await asyncio.to_thread(give_back)  # measured: 30 MB that loading has freed


async def wait_for_models(services: "Services") -> None:
    """Return once every model has been up."""
    while await services.infrastructure.models.missing():
        await asyncio.sleep(MODELS_S)


async def _warm_up_planning(services: "Services") -> None:
    from models.errors import EngineError
    from pipelines.tts.reading import SpeechRequest

    while True:
        try:
            # An ambiguous text makes the language detector load the models of all languages.
            await services.speech.synthesis.pipeline.plan(SpeechRequest("Hello"))
            break
        except EngineError:
            await asyncio.sleep(1)
