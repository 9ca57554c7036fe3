"""The accounts of the operator's commands, and the login link of a service that is alone on its
machine."""

from configs.environment import serves_only_this_machine
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Settings
from db.database import Database
from deployments.cluster.readiness import local_url
from pipelines.accounts.service import Accounts

SET_PASSWORD = ("set-password", "--new-email", "you@example.com")


def accounts_of(database: Database, settings: Settings) -> Accounts:
    """Makes the accounts service with the plans of `configs/plans.yaml`."""
    return Accounts(database, settings.secrets, load_yaml(PlansConfig, "plans"))


async def console_link(
    settings: Settings, accounts: Accounts, url: str | None = None
) -> str | None:
    """Create a login link of the console, which ends the previous one; None if the service serves
    other machines, too, or its first workspace was erased. The link begins with `url`, or else
    with the host and port of the settings. Raises DatabaseUnavailable."""
    if not serves_only_this_machine(settings.host):
        return None
    workspace_id = await accounts.owner_workspace()
    token = workspace_id and await accounts.login_link(workspace_id)
    base = url.rstrip("/") if url else local_url(settings)
    return f"{base}/console#login={token}" if token else None
