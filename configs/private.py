"""Checks that other users of the machine cannot enter a folder of the service, or replace it."""

import os
import stat
from pathlib import Path

from configs.environment import SettingsError


def check_private(folder: Path, variable: str) -> None:
    """Raises SettingsError, which names the `variable`, unless `folder` has mode 700 and is this
    user's. A link is not followed."""
    try:
        status = folder.lstat()
    except OSError as error:
        message = f"{variable}: cannot read the folder {str(folder)!r}: {error.strerror}"
        raise SettingsError(message) from None
    if not stat.S_ISDIR(status.st_mode):
        raise SettingsError(f"{variable}: {str(folder)!r} is not a folder")
    if status.st_uid != os.geteuid():
        raise SettingsError(
            f"{variable}: the folder {str(folder)!r} belongs to user {status.st_uid}, and the"
            f" service runs as user {os.geteuid()}"
        )
    if status.st_mode & 0o077:
        raise SettingsError(
            f"{variable}: the folder {str(folder)!r} is open to other users (mode"
            f" {stat.S_IMODE(status.st_mode):o}); run chmod 700 on it, or give another"
        )
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise SettingsError(
                f"{variable}: any user can replace {str(folder)!r}, since {str(parent)!r} is"
                f" writable for all (mode {stat.S_IMODE(mode):o})"
            )
