"""Storage of workspaces within their plans, and the free space of the service's disks."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from sqlmodel import Session

from configs.schema.platform import PlanLimits, PlansConfig
from db.accounts import Workspace
from db.chats import bytes_of_chats
from db.files import stored_bytes
from models.figures import beside
from pipelines.errors import StorageLimit, StorageUnavailable
from pipelines.tasks import TtlCache
from telemetry import metrics

MB, GB = 10**6, 10**9
LEAST_FREE_BYTES, LEAST_FREE_SHARE = GB, 0.05
MEASURED_FOR_S = 1.0


def plan_limits(session: Session, plans: PlansConfig, workspace_id: int) -> PlanLimits:
    workspace = session.get(Workspace, workspace_id)
    plan = workspace.plan if workspace else ""
    return plans.limits_of(plan, is_owner=workspace_id == plans.free_workspace_id)


def use_and_limit(session: Session, plans: PlansConfig, workspace_id: int) -> tuple[int, int]:
    """Return the bytes of files and chats that a workspace keeps, and those its plan allows."""
    used = stored_bytes(session, workspace_id) + bytes_of_chats(session, workspace_id)
    return used, plan_limits(session, plans, workspace_id).storage_gb * GB


def check_room(session: Session, plans: PlansConfig, workspace_id: int, more: int = 0) -> None:
    """Raise StorageLimit if the workspace would keep more than its plan allows, with `more` bytes
    and files that the transaction has added; concurrent transactions wait for each other's sums."""
    limits = plan_limits(session, plans, workspace_id)
    # Chats are bounded by the plan, too; to sum 10,000 of them takes 3 ms.
    most = stored_bytes(session, workspace_id) + more + limits.saved_chats_mb * MB
    if most > limits.storage_gb * GB:
        used, limit = use_and_limit(session, plans, workspace_id)
        if used + more > limit:
            raise StorageLimit(
                f"the plan allows {limit // GB} GB of files and saved chats, and {used / GB:.3f} GB"
                " would be in use; delete some, or choose a larger plan"
            )


def floor_bytes(volume: os.statvfs_result, floor_mb: int | None) -> int:
    """Return the free space of a volume below which nothing is stored. With `floor_mb` None, it is
    the larger of LEAST_FREE_BYTES and LEAST_FREE_SHARE of the volume, and at most half of it."""
    total = volume.f_blocks * volume.f_frsize
    usual = int(min(max(LEAST_FREE_BYTES, total * LEAST_FREE_SHARE), total / 2))
    return usual if floor_mb is None else floor_mb * MB


class FreeSpace:
    """The free space of the volumes that the service writes to. Below a floor nothing is stored, so
    that the database, which may share a volume with files, can continue."""

    def __init__(self, folders: Mapping[str, Path], floor_mb: int | None) -> None:
        """Create the check of `folders`, by what each stores; `floor_mb` as for `floor_bytes`."""
        self._folders = folders
        self._floor_mb = floor_mb
        self._measured: TtlCache[None, list[str]] = TtlCache(MEASURED_FOR_S, 1)

    async def check(self) -> None:
        """Raise StorageUnavailable if a volume is below the floor."""
        if await self.low():
            raise StorageUnavailable("the disk of the service is nearly full; try again later")

    async def low(self) -> list[str]:
        """Describe volumes with little free space or few inodes, as measured in the last second."""
        return await self._measured.get(None, lambda: asyncio.to_thread(self._measure))

    def _measure(self) -> list[str]:
        low = []
        for name, folder in self._folders.items():
            while not folder.exists():  # it is made with the first file
                folder = folder.parent
            volume = os.statvfs(folder)
            free, floor = volume.f_bavail * volume.f_frsize, floor_bytes(volume, self._floor_mb)
            metrics.volume_free_bytes.labels(name).set(free)
            metrics.volume_floor_bytes.labels(name).set(floor)
            few_files = volume.f_favail < volume.f_files * LEAST_FREE_SHARE
            if free < floor:
                free_gb, floor_gb = beside(free / GB, floor / GB, 1)
                low.append(
                    f"{free_gb} GB are free on the volume of {name} ({folder}), and nothing"
                    f" is stored below {floor_gb} GB: free some space, or set FREE_SPACE_MB"
                )
            elif few_files and self._floor_mb is None:
                low.append(f"the volume of {name} ({folder}) has hardly any inodes left")
        return low
