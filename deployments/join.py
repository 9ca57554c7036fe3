"""Joins this machine to the cluster of a running service: make join ADDRESS=10.0.0.1:6379"""

import asyncio
import os
import sys
from pathlib import Path

import click

from configs.environment import SettingsError, cluster_address
from configs.settings import load_settings
from db.errors import DatabaseError
from deployments.cluster import node
from deployments.cluster.compat import published_release
from deployments.cluster.release import release
from deployments.cluster.shared_stores import open_database, own_stores
from deployments.replicas.choice import chosen
from models.registry import CHAT, artefacts_of
from models.weights.__main__ import fetch_weights


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address")
@click.option("--num-cpus", type=int, help="CPU cores for Ray. Default: all.")
def main(address: str, num_cpus: int | None) -> None:
    """Join this machine to the cluster of a service: ADDRESS is printed by its `make run`.

    It needs the environment of the service: the same secrets, DATABASE_URL and STORAGE_URL. Runs
    until it is stopped, or until the cluster ends.
    """
    try:
        settings = load_settings(new_secrets=False)
        if problems := own_stores(settings):
            raise SettingsError(f"This machine would have data of its own: {'; '.join(problems)}")
        node.prepare_environment(settings, joins=True)
        node.keep_private(settings.data_dir)
        asyncio.run(open_database(settings)).close()
        first = published_release(address)
        weights = artefacts_of(CHAT.read(chosen()))
    except (ValueError, DatabaseError, ConnectionError) as error:
        sys.exit(str(error))
    if first != release():
        sys.exit(
            f"The service at {address} runs release {first}, and this machine has"
            f" {release()}: they need the same code and configs/"
        )
    fetch_weights(weights)  # reports failures: no replica of such a model can run here
    # Run as a module: the first line of the program `ray` cannot hold a path with a space.
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start"]
    command += [f"--address={address}", "--block", "--disable-usage-stats"]
    # Otherwise Ray uses the path of the first machine's folder, which other users may reach here.
    command.append(f"--temp-dir={Path(os.environ['RAY_TMPDIR'], 'ray')}")
    own = cluster_address()
    # A copy of the first machine's environment has its CLUSTER_ADDRESS.
    if own is not None and own[0] != address.rpartition(":")[0]:
        command.append(f"--node-ip-address={own[0]}")
    if num_cpus is not None:
        command.append(f"--num-cpus={num_cpus}")
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
