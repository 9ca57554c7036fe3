"""Stops a process whose secrets are not those that its database was used with.

It would serve, but know no API key or token of the others, and open nothing that they sealed.
"""

import hmac

from sqlalchemy.exc import IntegrityError

from configs.environment import SettingsError
from configs.settings import VARIABLES_OF_SECRETS, Secrets
from db.database import Database
from db.service import unknown_secrets


async def check_secret_fingerprints(
    database: Database, secrets: Secrets, *, accept: bool = False
) -> None:
    """The first process leaves a mark of each secret; `accept` replaces the marks.

    Raises SettingsError, which names the variables, or DatabaseUnavailable.
    """
    marks = _marks(secrets)
    try:
        strange = await database.run(unknown_secrets, marks, accept=accept)
    except IntegrityError:  # another process left its marks first
        strange = await database.run(unknown_secrets, marks, accept=accept)
    if strange:
        raise SettingsError(
            f"{', '.join(strange)}: not what this database was used with; give every node the same"
            " secrets, or run `python -m deployments.operator accept-secrets` if they changed on"
            " purpose"
        )


def _marks(secrets: Secrets) -> dict[str, list[bytes]]:
    """By variable. A data key or a token key may have others beside it, which are known too."""
    values = {
        "token_key": secrets.token_keys,
        "api_key_pepper": (secrets.api_key_pepper,),
        "url_key": (secrets.url_key,),
        "data_keys": secrets.data_keys,
    }
    return {
        variable: [hmac.digest(value.encode(), b"mark", "sha256") for value in values[name]]
        for name, variable in VARIABLES_OF_SECRETS.items()
    }
