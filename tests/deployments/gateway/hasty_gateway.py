"""The gateway with a short drain of live sockets, and few of them, so that tests need not wait
for the real ones."""

import os

from ray import serve
from ray.serve import Application

from configs.schema.serve import GatewayArgs
from deployments.gateway.replica import Gateway

GRACE_S = 2.0


class HastyGateway(Gateway):
    async def __init__(self, args: GatewayArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        await super().__init__(args)
        sockets = self.services.infrastructure.sockets
        sockets.limits = sockets.limits.model_copy(update={"drain_s": GRACE_S})
        if most := os.environ.get("MOST_SOCKETS"):
            sockets.at_most = int(most)


def build_gateway(args: GatewayArgs) -> Application:
    application: Application = serve.deployment(name="Gateway")(HastyGateway).bind(args)
    return application
