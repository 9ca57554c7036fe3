"""A machine whose service is started again and again, for itself alone or for others."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Self

from api.app import create_app
from configs.settings import Settings
from db.billing import ledger
from db.database import utc_now
from pipelines.accounts.service import Accounts
from tests.api.local_server import local_settings, serve_app
from tests.api.local_services import local_services


@dataclass(frozen=True)
class Machine:
    """Its starts have the same data. The owner has no credit left."""

    settings: Settings
    workspace_id: int
    key: str

    @classmethod
    def make(cls, folder: Path) -> Self:
        settings = local_settings(folder)
        services = local_services(settings)
        accounts, database = services.platform.accounts, services.infrastructure.database

        async def prepare() -> tuple[str | None, int | None]:
            key, workspace_id = (
                await accounts.ensure_first_workspace(),
                await accounts.owner_workspace(),
            )
            credit = services.platform.plans.signup_credit
            await database.run(ledger.change_credit, workspace_id or 0, "spent", -credit, "test")
            return key, workspace_id

        key, workspace_id = asyncio.run(prepare())
        database.close()
        assert key is not None and workspace_id is not None
        return cls(settings, workspace_id, key)

    @contextmanager
    def start(self, *, alone: bool) -> Iterator[str]:
        """Starts the service; yields its address."""
        workspace_id = self.workspace_id if alone else None
        services = local_services(replace(self.settings, free_workspace_id=workspace_id))
        try:
            with serve_app(create_app(services)) as url:
                yield url
        finally:
            services.infrastructure.database.close()

    def link(self) -> str:
        """Returns the token of a new link."""
        with self._accounts() as accounts:
            token = asyncio.run(accounts.login_link(self.workspace_id))
        assert token is not None
        return token

    def invite(self) -> str:
        """Returns the code of a new invite for any address."""
        with self._accounts() as accounts:
            return asyncio.run(accounts.invite(None, None, utc_now() + timedelta(days=1)))

    @contextmanager
    def _accounts(self) -> Iterator[Accounts]:
        services = local_services(self.settings)
        try:
            yield services.platform.accounts
        finally:
            services.infrastructure.database.close()
