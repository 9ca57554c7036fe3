"""The login link of a service that is alone on its machine."""

from configs.environment import serves_only_this_machine
from configs.settings import Settings
from deployments.cluster.readiness import local_url
from pipelines.accounts.service import Accounts


async def console_link(settings: Settings, accounts: Accounts) -> str | None:
    """Create a login link of the console, which ends the previous one; None if the service serves
    other machines, too, or its first workspace was erased. Raises DatabaseUnavailable."""
    if not serves_only_this_machine(settings.host):
        return None
    workspace_id = await accounts.owner_workspace()
    token = workspace_id and await accounts.login_link(workspace_id)
    return f"{local_url(settings)}/console#login={token}" if token else None
