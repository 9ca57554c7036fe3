"""The base class of deployments that take no `user_config`."""

import logging

logger = logging.getLogger(__name__)


class NoUserConfig:
    """Ignores a `user_config`. If `reconfigure` were missing, Serve would replace all running
    replicas by replicas that cannot start."""

    async def reconfigure(self, user_config: object) -> None:
        logger.error("user_config_ignored", extra={"deployment": type(self).__name__})
