"""The ingress: builds the services over handles and serves them on its own HTTP server."""

import asyncio

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from api.app import create_app
from api.services import Services
from configs.logs import setup_logs
from configs.serve_schema import GatewayArgs
from configs.settings import load_settings
from deployments.directory import ModelDirectory
from deployments.listener import Listener
from deployments.services import build_services


class Gateway:
    """Stateless but for live sockets; several replicas share the port on a host."""

    async def __init__(self, args: GatewayArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        setup_logs()
        settings = load_settings()
        self._directory = ModelDirectory(args.models_app)
        self._following = asyncio.create_task(self._directory.follow())
        self.services: Services = build_services(settings, self._directory)
        self._listener: Listener | None = None
        if args.server == "own":
            self._listener = Listener(create_app(self.services), settings.host, settings.port)
            await self._listener.start()

    def check_health(self) -> None:
        """Serve restarts the replica when its HTTP server is gone."""
        if self._listener is not None and not self._listener.serving:
            raise RuntimeError("the HTTP server has ended")

    async def __del__(self) -> None:
        """Serve awaits this when the replica leaves: live requests end first."""
        if self._listener is not None:
            await self._listener.stop()
        self._following.cancel()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """For Serve's own HTTP proxy (`server: serve`): the same app over the same services."""
        return create_app(self.services)


def build_gateway(args: GatewayArgs) -> Application:
    """The application `gateway`: HTTP and WebSockets."""
    gateway = serve.ingress()(Gateway) if args.server == "serve" else Gateway
    return serve.deployment(name="Gateway")(gateway).bind(args)
