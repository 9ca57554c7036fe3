"""The deployment of Home Assistant's Wyoming protocol: a gateway's services behind a TCP port."""

import asyncio
import logging
import socket
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from configs.environment import SettingsError, listens_everywhere
from configs.schema.serve import GatewayArgs
from configs.settings import BRAND, Settings
from deployments.gateway.replica import Gateway, wait_for_models

if TYPE_CHECKING:
    from api.services import Services
    from deployments.gateway.listener import Listener

logger = logging.getLogger(__name__)

SERVICE_TYPE = "_wyoming._tcp.local."
MULTICAST_DNS = "224.0.0.251"
MODELS_WAIT_S = 120.0  # time for models to load; the port then opens without those that are missing


class Wyoming(Gateway):
    """Gateway of Home Assistant's protocol; all connections use one API key. Its application is
    deployed only if WYOMING_PORT is set."""

    corrects = False

    async def listen(self, settings: Settings, args: GatewayArgs) -> "Listener":
        """Start the server of this replica. Raises SettingsError if the key is wrong or missing."""
        from deployments.cluster.shared_stores import check_wyoming_key

        wanted = settings.wyoming
        if wanted is None:
            raise SettingsError("the application wyoming needs WYOMING_PORT and WYOMING_KEY")
        await check_wyoming_key(settings, self.services.platform.accounts.authenticator)
        # Home Assistant creates entities only for the kinds of models that it finds when it
        # connects. Measured: 2026.11 created only one for a service that had just started.
        with suppress(TimeoutError):
            async with asyncio.timeout(MODELS_WAIT_S):
                await wait_for_models(self.services)
        listener = WyomingListener(self.services, wanted.host, wanted.port, wanted.key)
        await listener.start()
        if wanted.announces:
            await listener.announce()
        return listener


class WyomingListener:
    """Serves Wyoming's clients until `stop`, on a port that the replicas of a host share."""

    def __init__(self, services: "Services", host: str, port: int, key: str) -> None:
        from api.wyoming.bridge import WyomingBridge
        from deployments.gateway.listener import listening_socket

        self._bridge = WyomingBridge(services, key)
        self._socket = listening_socket(host, port)
        self._server: asyncio.Server | None = None
        self._zeroconf: Any = None  # AsyncZeroconf, imported only if it is used

    @property
    def address(self) -> tuple[str, int]:
        """Return where the server listens; useful if the port 0 was configured."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Return when the server accepts connections."""
        from api.wyoming.events import HEADER_BYTES
        from deployments.gateway.listener import BACKLOG

        self._server = await asyncio.start_server(
            self._bridge.serve, sock=self._socket, limit=HEADER_BYTES, backlog=BACKLOG
        )

    @property
    def serving(self) -> bool:
        return self._server is not None and self._server.is_serving()

    async def announce(self) -> None:
        """Announce the port to Home Assistant by multicast DNS, if the network supports it."""
        from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

        host, port = self.address
        name = f"{BRAND} on {socket.gethostname().partition('.')[0][:40]}.{SERVICE_TYPE}"
        try:
            address = main_address() if listens_everywhere(host) else host
            info = AsyncServiceInfo(SERVICE_TYPE, name, port, parsed_addresses=[address])
            self._zeroconf = AsyncZeroconf()
            # Other replicas on this host announce the same name.
            await self._zeroconf.async_register_service(info, cooperating_responders=True)
        except OSError as error:
            logger.warning("wyoming_not_announced", extra={"reason": str(error)})

    async def stop(self, drain: Awaitable[None] | None = None) -> None:
        """Stop accepting, and await `drain`, which ends the sessions."""
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
        if self._server is not None:
            self._server.close()
        if drain is not None:
            await drain


def main_address() -> str:
    """Return the address from which this machine sends multicast DNS. If several addresses are
    announced, Home Assistant takes any of them, such as that of Docker's bridge. Raises OSError
    without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.connect((MULTICAST_DNS, 9))  # sends nothing
        return str(unused.getsockname()[0])
