"""A machine whose service is started again and again, for itself alone or for others."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from api.app import create_app
from configs.settings import Settings
from db.billing import ledger
from tests.api.local_server import local_settings, serve_app
from tests.api.local_services import local_services


@dataclass(frozen=True)
class Machine:
    """Its starts have the same data. The owner has no credit left."""

    settings: Settings
    owner_id: int
    key: str

    @classmethod
    def make(cls, folder: Path) -> Self:
        settings = local_settings(folder)
        services = local_services(settings)
        accounts, database = services.platform.accounts, services.infrastructure.database

        async def prepare() -> tuple[str | None, int | None]:
            key, owner_id = (
                await accounts.ensure_first_workspace(),
                await accounts.owner_workspace(),
            )
            credit = services.platform.plans.signup_credit
            await database.run(ledger.change_credit, owner_id or 0, "spent", -credit, "test")
            return key, owner_id

        key, owner_id = asyncio.run(prepare())
        database.close()
        assert key is not None and owner_id is not None
        return cls(settings, owner_id, key)

    @contextmanager
    def start(self, *, alone: bool) -> Iterator[str]:
        """Starts the service; yields its address."""
        owner_id = self.owner_id if alone else None
        services = local_services(replace(self.settings, owner_id=owner_id))
        try:
            with serve_app(create_app(services)) as url:
                yield url
        finally:
            services.infrastructure.database.close()

    def link(self) -> str:
        """Returns the token of a new link."""
        services = local_services(self.settings)
        token = asyncio.run(services.platform.accounts.login_link(self.owner_id))
        services.infrastructure.database.close()
        assert token is not None
        return token
