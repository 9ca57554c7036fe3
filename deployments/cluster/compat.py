"""The private interfaces of Ray and uvicorn that this service uses, each behind a guard.

Neither library guarantees them. A guard raises Incompatible with the missing name. Without guards,
a monkey patch of a name that is gone would silently have no effect. `untested_versions` reports
installed versions that differ from the tested ones.

The protocols of `deployments.gateway` subclass uvicorn's and depend on private parts, too; they
have modules of their own, since they implement most of the gateway's limits.
"""

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from configs.environment import cores, is_loopback
from configs.load import load_yaml

if TYPE_CHECKING:
    import uvicorn
    from ray.serve.handle import DeploymentHandle

TESTED = {"ray": "2.60", "uvicorn": "0.54"}

RAY_SWITCHES: dict[str, str] = {
    **load_yaml(dict[str, str], str(Path(__file__).with_name("ray_switches.yaml"))),
    # A replica requests a fraction of a core, for which Ray would limit OpenMP to one thread.
    "OMP_NUM_THREADS": str(cores()),
}
"""Environment variables of a Ray node. Serve reads them in each process that it starts;
`serve_config.yaml` cannot set them. Ray ignores unknown variables."""


class Incompatible(RuntimeError):
    """An installed library lacks a private interface that this service uses."""


def untested_versions() -> list[str]:
    """Return a warning for each library whose installed version is not the tested one."""
    return [
        f"{package} {version(package)} is installed; the service was tested with {tested}."
        for package, tested in TESTED.items()
        if not version(package).startswith(f"{tested}.")
    ]


@contextmanager
def node_options(gcs: int | None = None) -> Iterator[None]:
    """Set options that `ray.init` lacks, for a cluster that starts in the block.

    The dashboard agent, which starts jobs, chooses a free port. With its default, 52365, it fails
    to start in a second cluster on the machine, and no voice is built. The GCS uses the port `gcs`,
    where other machines join. Two processes of Ray are not started, and this process keeps its
    handler of SIGTERM. Each process of Ray leads a process group. Otherwise a signal to the group
    of this process, such as that of `timeout`, would end Ray first, and the service would wait 60 s
    for Ray before it stops. Raises Incompatible.
    """
    from ray._private import parameter, utils

    set_handler = _required(utils, "set_sigterm_handler")
    end_with_parent = _required(utils, "set_kill_on_parent_death_linux")  # called in each child

    def begin_child() -> None:
        os.setpgrp()
        end_with_parent()

    shipped: Any = parameter.RayParams
    options = {
        "dashboard_agent_listen_port": 0,
        "gcs_server_port": gcs,
        "include_log_monitor": False,  # it sends logs to drivers, and `log_to_driver` is off
        "no_monitor": True,  # it scales machines in clouds
    }
    for name in sorted(options.keys() - inspect.signature(shipped).parameters):
        raise Incompatible(f"ray: RayParams has no argument {name}")
    changed: Any = parameter
    changed.RayParams = partial(shipped, **options)
    vars(utils)["set_sigterm_handler"] = lambda handler: None
    vars(utils)["set_kill_on_parent_death_linux"] = begin_child
    try:
        yield
    finally:
        changed.RayParams = shipped
        vars(utils)["set_sigterm_handler"] = set_handler
        vars(utils)["set_kill_on_parent_death_linux"] = end_with_parent


def keep_replica_on_loopback() -> None:
    """Let Serve's gRPC server of this replica listen on the loopback interface if Ray does. Serve
    binds the server to every interface after the deployment's constructor, which therefore calls
    this function. It does nothing outside of a replica. Raises Incompatible."""
    import ray
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        serve.get_replica_context()
    except RayServeException:
        return
    from ray.serve._private import replica

    changed: Any = replica
    shipped = _required(replica, "add_port_to_grpc_server")
    if is_loopback(ray.util.get_node_ip_address()):
        changed.add_port_to_grpc_server = lambda server, _: shipped(server, "127.0.0.1:0")


@contextmanager
def _router_of(handle: "DeploymentHandle[Any]") -> Iterator[Any]:
    try:
        yield handle._init_router()._asyncio_router  # type: ignore[attr-defined]
    except AttributeError as error:
        raise Incompatible(f"ray: a handle's router has changed: {error}") from None


Availability: TypeAlias = Literal["ready", "asleep", "lost"]


def availability(handle: "DeploymentHandle[Any]") -> Availability:
    """Tell whether the deployment has a replica, from what Serve has told this handle, without a
    call. `asleep` means that it was scaled to zero, and that a call starts a replica. Raises
    Incompatible."""
    with _router_of(handle) as router:
        chooser, scaling = router.request_router, router._metrics_manager.autoscaling_config
        if chooser is not None and chooser.curr_replicas:
            return "ready"
        may_sleep = scaling is not None and scaling.min_replicas == 0
        return "asleep" if may_sleep and router._deployment_available else "lost"


def route_to_replicas_that_swap() -> None:
    """Let Serve's controller route to a replica during its `reconfigure`. Serve calls this when the
    controller starts, by RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH.

    The replica still serves with its old model, but Ray would remove it from the routers. Chats
    with the only replica of a model then got 503 for the 17 s in which the next model was loaded on
    an H100. Ray 2.60 has no option for this (https://github.com/ray-project/ray/issues/54509), and
    a request router of our own would see the same empty list as for a replica that is stopped. If
    `reconfigure` returned before the model is loaded, Serve would report the swap as done, and load
    the model on all replicas at once. Raises Incompatible.
    """
    from ray.serve._private import deployment_state

    ray: Any = deployment_state
    changed = ray.DeploymentState
    if not {"_BROADCAST_STATES", "get_running_replica_infos"} <= vars(changed).keys():
        raise Incompatible("ray: DeploymentState tells routers of its replicas in another way")
    routed = changed._BROADCAST_STATES = changed._BROADCAST_STATES | {ray.ReplicaState.UPDATING}

    def infos(self: Any) -> list[Any]:
        nodes = self._cluster_node_info_cache
        return [
            replica.get_running_replica_info(nodes) for replica in self._replicas.get(list(routed))
        ]

    changed.get_running_replica_infos = infos


def report_waiting_calls(handle: "DeploymentHandle[Any]") -> None:
    """Tell Serve at once of the calls that wait for a replica of an autoscaled deployment. Serve's
    own report was made before the call, so the replica would start up to 10 s later. Raises
    Incompatible."""
    with _router_of(handle) as router:
        router._metrics_manager._add_autoscaling_metrics_point()
        router._metrics_manager.push_autoscaling_metrics_to_controller()


async def taken(response: Any) -> None:
    """Return when a replica has accepted the call; if cancelled before that, the call is not made.
    Raises the exception of the call, or Incompatible."""
    await _required(response, "_fetch_future_result_async")()


_RELEASE = (b"release", b"antiphon")  # key and namespace


def publish_release(release: str) -> None:
    """Store the release of the cluster's first machine in its GCS. Raises Incompatible."""
    from ray.experimental import internal_kv

    key, namespace = _RELEASE
    _required(internal_kv, "_internal_kv_put")(key, release.encode(), namespace=namespace)


def driver_handle(deployment: str, application: str) -> Any:
    """Return a handle for a program without an event loop. With RAY_SERVE_THROUGHPUT_OPTIMIZED,
    Serve's own handle would use the caller's loop. Raises Incompatible."""
    from ray import serve

    handle: Any = serve.get_deployment_handle(deployment, app_name=application)
    if _required(handle, "init_options") is None:  # Serve returns the same handle each time
        _required(handle, "_init")(_run_router_in_separate_loop=True)
    return handle


def declared_applications() -> list[dict[str, Any]]:
    """Return the configurations of all applications that were deployed last, including those whose
    builders still run; none outside of a cluster. Raises Incompatible."""
    import ray
    from ray.serve import context

    if not ray.is_initialized():
        return []
    client = _required(context, "_get_global_client")(raise_if_no_controller_running=False)
    details = {} if client is None else _required(client, "get_serve_details")()
    listed = [app["deployed_app_config"] for app in details.get("applications", {}).values()]
    return [config for config in listed if config is not None]


def dashboard_url() -> str:
    """Return the URL of the dashboard of this process's cluster. Raises Incompatible."""
    from ray._private import services

    return f"http://{_required(services, 'get_webui_url_from_internal_kv')()}"


def published_release(address: str, timeout_s: float = 10.0) -> str | None:
    """Return the release of the cluster whose GCS is at `address`, or None if none was stored.
    Raises ConnectionError, or Incompatible."""
    import grpc
    from ray import _raylet

    try:  # GcsClient would print for 40 s
        with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
            grpc.channel_ready_future(channel).result(timeout_s)
    except grpc.FutureTimeoutError:
        raise ConnectionError(f"no Ray cluster answers at {address}") from None
    gcs_client = _required(_raylet, "GcsClient")
    key, namespace = _RELEASE
    try:
        client = gcs_client(address=address)
        published: bytes | None = client.internal_kv_get(key, namespace, timeout_s)
    except Exception as error:  # Ray raises various classes: no cluster, wrong token
        raise ConnectionError(f"no Ray cluster answers at {address}: {error}") from None
    return None if published is None else published.decode()


def stop_late_node(error: Exception) -> bool:
    """Whether `error` means that a node or its dashboard did not start in time. Stops the processes
    that Ray left running."""
    from ray._private.node import Node

    if not any(message in str(error) for message in ("timed out during startup", "the dashboard")):
        return False
    for frame, _ in walk_tb(error.__traceback__):
        if isinstance(node := frame.f_locals.get("self"), Node):
            node.kill_all_processes(check_alive=False)
            return True
    return False


def without_signal_handlers(server: "uvicorn.Server") -> "uvicorn.Server":
    """Disable the server's signal handlers, so that Ray's remain. Raises Incompatible."""
    _required(server, "capture_signals")
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    return server


def close_connections_after_response(server: "uvicorn.Server") -> None:
    """Add `Connection: close` to every later response, also on open connections. Keep-alive clients
    then reconnect to another server, and lose no request when this one stops. Raises
    Incompatible."""
    close, state = (b"connection", b"close"), server.server_state
    _required(server.config, "encoded_headers").append(close)
    state.default_headers = [*_required(state, "default_headers"), close]


def close_listeners(server: "uvicorn.Server") -> None:
    """Close the listening sockets; open connections stay open. Raises Incompatible."""
    for listener in _required(server, "servers"):
        listener.close()


def new_protocol(server: "uvicorn.Server", kind: Callable[..., asyncio.Protocol]) -> Any:
    """Return a protocol of `kind` for a connection that was accepted outside of the server."""
    return kind(server.config, server.server_state, _required(server.lifespan, "state"))


def _required(holder: Any, name: str) -> Any:
    """Return the private part `name` of a library's module or object. Raises Incompatible."""
    if not hasattr(holder, name):
        where = holder if isinstance(holder, ModuleType) else type(holder)
        raise Incompatible(f"{where.__name__} has no {name}")
    return getattr(holder, name)
