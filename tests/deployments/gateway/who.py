"""An application whose replicas tell who they are."""

from typing import Any

from ray import serve
from ray.serve import Application


class Who:
    async def ask(self, wait_s: float = 0.0) -> str:
        import asyncio

        await asyncio.sleep(wait_s)
        return str(serve.get_replica_context().replica_id.unique_id)


def build(_: dict[str, Any]) -> Application:
    application: Application = serve.deployment(name="Who")(Who).bind()
    return application
