"""Joins this machine to the cluster of a running service: make join ADDRESS=10.0.0.1:6379

It needs the environment of the service: the same secrets, DATABASE_URL and STORAGE_URL. Runs until
it is stopped, or until the cluster ends.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from configs.environment import SettingsError, cluster_address, program_name
from configs.settings import load_settings
from db.errors import DatabaseError
from deployments.cluster import node
from deployments.cluster.compat import published_release
from deployments.cluster.release import release
from deployments.cluster.shared_stores import open_database, own_stores
from deployments.default_chat.choice import chosen
from models.registry import CHAT, artefacts_of
from models.weights.__main__ import main as fetch_weights


def main() -> None:
    """Exits with a sentence when this machine would not agree with the others."""
    parser = argparse.ArgumentParser(prog=program_name("deployments.join"), description=__doc__)
    parser.add_argument("address", help="what `make run` with CLUSTER_ADDRESS prints")
    parser.add_argument("--num-cpus", type=int, help="CPU cores for Ray; all by default")
    options = parser.parse_args()
    try:
        settings = load_settings(new_secrets=False)
        if found := own_stores(settings):
            raise SettingsError(f"This machine would have data of its own: {'; '.join(found)}")
        node.prepare_environment(settings, joins=True)
        node.keep_private(settings.data_dir)
        asyncio.run(open_database(settings)).close()
        first = published_release(options.address)
        weights = artefacts_of(CHAT.read(chosen()))
    except (ValueError, DatabaseError, ConnectionError) as error:
        sys.exit(str(error))
    if first != release():
        sys.exit(
            f"The service at {options.address} runs release {first}, and this machine has"
            f" {release()}: they need the same code and configs/"
        )
    fetch_weights(["fetch", *weights])  # says what fails: then no replica of it can run here
    # By its module: the first line of the program `ray` can hold no path with a space.
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start"]
    command += [f"--address={options.address}", "--block", "--disable-usage-stats"]
    # Without it Ray uses the path of the first machine's folder, which may be open on this one.
    command.append(f"--temp-dir={Path(os.environ['RAY_TMPDIR'], 'ray')}")
    own = cluster_address()
    # A copy of the first machine's environment has its CLUSTER_ADDRESS.
    if own is not None and own[0] != options.address.rpartition(":")[0]:
        command.append(f"--node-ip-address={own[0]}")
    if options.num_cpus is not None:
        command.append(f"--num-cpus={options.num_cpus}")
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
