"""The private interfaces of Ray and uvicorn that this service uses, each behind a guard.

Neither library promises to keep them. A guard raises Incompatible, with the name that is missing,
instead of letting a replacement go without effect. `untested_versions` says when an installed
version is another than the one that these were tested with.

The protocols of `deployments.gateway.connections` are subclasses of uvicorn's own, which belong
here too by their nature; they have a module, since they are most of the gateway's limits.
"""

import asyncio
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

TESTED = {"ray": "2.60", "uvicorn": "0.54"}

RAY_SWITCHES = {
    # gRPC hops and one event loop a replica: a hop costs 0.8 ms and not 2 ms.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # The gateway listens by itself; a second HTTP server in it would only take a port.
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
    # Minutes of audio cross a handle in one message; the default is 4 MB.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(256 << 20),
    # The default of 15 lets any other process of the machine starve the replicas.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A replica asks for a fraction of a core, which would make OpenMP use one thread.
    "OMP_NUM_THREADS": str(os.cpu_count() or 1),
    # Each thread of a process would have a heap of its own. Measured: 2 heaps each take 110 MB less
    # of the whole service under load, and the recogniser is as fast.
    "MALLOC_ARENA_MAX": "2",
    # The dashboard listens on the loopback only; set `token` where others share the machine.
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Environment variables of a Ray node. Serve reads them in each process that it starts, and
`serve_config.yaml` cannot hold them. Ray ignores a variable that it does not know."""


class Incompatible(RuntimeError):
    """An installed library lacks a private interface that is used here."""


def untested_versions() -> list[str]:
    """A sentence for each library whose installed version is not the tested one."""
    return [
        f"{package} {version(package)} is installed; the service was tested with {tested}."
        for package, tested in TESTED.items()
        if not version(package).startswith(f"{tested}.")
    ]


@contextmanager
def any_dashboard_agent_port() -> Iterator[None]:
    """Lets a cluster that starts in the block choose a free port for Ray's dashboard agent.

    The agent starts jobs. Its default is port 52365 of the machine: in a second cluster it does
    not start, and no voice is made. No argument of `ray.init` reaches it. Raises Incompatible.
    """
    from ray._private import parameter

    shipped: Any = parameter.RayParams
    if "dashboard_agent_listen_port" not in inspect.signature(shipped).parameters:
        raise Incompatible("ray: RayParams has no argument dashboard_agent_listen_port")
    changed: Any = parameter
    changed.RayParams = partial(shipped, dashboard_agent_listen_port=0)
    try:
        yield
    finally:
        changed.RayParams = shipped


def without_signal_handlers(server: "uvicorn.Server") -> "uvicorn.Server":
    """The same server, which leaves signals to Ray's process. Raises Incompatible."""
    _require(server, "capture_signals")
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    return server


def close_connections_after_response(server: "uvicorn.Server") -> None:
    """Adds `Connection: close` to every response from now on, those of open connections too.

    Clients that keep a connection then move on to another server and lose no request when this
    one stops. Raises Incompatible.
    """
    config, state = server.config, server.server_state
    _require(config, "encoded_headers")
    _require(state, "default_headers")
    config.encoded_headers.append((b"connection", b"close"))
    state.default_headers = [*state.default_headers, config.encoded_headers[-1]]


def close_listeners(server: "uvicorn.Server") -> None:
    """Closes the listening sockets, and leaves open connections. Raises Incompatible."""
    _require(server, "servers")
    for listener in server.servers:
        listener.close()


def new_protocol(server: "uvicorn.Server", kind: type[asyncio.Protocol]) -> Any:
    """A protocol of `kind` for a connection that was accepted outside of the server."""
    _require(server.lifespan, "state")
    made: Any = kind
    return made(server.config, server.server_state, server.lifespan.state)


def _require(holder: object, name: str) -> None:
    if not hasattr(holder, name):
        raise Incompatible(f"uvicorn: {type(holder).__name__} has no {name}")
