"""The private interfaces of Ray and uvicorn are those that the service was tested with."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
import ray
import uvicorn
from ray import serve
from ray._private import parameter, utils
from ray.serve._private import deployment_state, replica

from deployments.cluster import compat
from tests.patience import PATIENCE_S
from tests.servers import UNUSABLE_PROXIES, free_port


def test_the_installed_versions_are_the_tested_ones() -> None:
    assert compat.untested_versions() == []


def test_an_untested_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compat.TESTED, "uvicorn", "0.1")
    (sentence,) = compat.untested_versions()
    assert sentence.startswith("uvicorn ") and sentence.endswith("tested with 0.1.")


def test_ray_parameters_are_patched_only_inside_the_context_manager() -> None:
    shipped = parameter.RayParams
    with compat.node_options():
        assert parameter.RayParams().dashboard_agent_listen_port == 0
        assert not parameter.RayParams().include_log_monitor
    assert parameter.RayParams is shipped


def test_ray_sets_no_handler_of_sigterm_inside_the_context_manager() -> None:
    before, shipped = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler
    with compat.node_options():
        utils.set_sigterm_handler(signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is before
    assert utils.set_sigterm_handler is shipped


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_grpc_reaches_a_machine_past_a_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for name, value in {**UNUSABLE_PROXIES, **compat.RAY_SWITCHES}.items():
        monkeypatch.setenv(name, value)
    server = grpc.server(ThreadPoolExecutor(1))
    try:
        port = server.add_insecure_port(f"{host}:0")
    except RuntimeError:
        pytest.skip(f"this machine has no {host}")
    server.start()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        grpc.channel_ready_future(channel).result(PATIENCE_S)
    server.stop(0)


@pytest.mark.parametrize(
    ("node", "address"), [("127.0.0.1", "127.0.0.1:0"), ("192.0.2.1", "[::]:0")]
)
def test_the_grpc_server_of_a_replica_listens_where_its_node_does(
    monkeypatch: pytest.MonkeyPatch, node: str, address: str
) -> None:
    class GrpcServer:
        def add_insecure_port(self, address: str) -> int:
            bound.append(address)
            return 1

    bound: list[str] = []
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: node)
    serve_replica: Any = replica
    shipped = serve_replica.add_port_to_grpc_server
    monkeypatch.setattr(replica, "add_port_to_grpc_server", shipped)  # restored after the test
    compat.keep_replica_on_loopback()  # not in a replica
    serve_replica.add_port_to_grpc_server(GrpcServer(), "[::]:0")
    monkeypatch.setattr(serve, "get_replica_context", object)
    compat.keep_replica_on_loopback()
    serve_replica.add_port_to_grpc_server(GrpcServer(), "[::]:0")
    assert bound == ["[::]:0", address]


@pytest.mark.parametrize("other", ["nothing", "http"])
def test_another_address_than_that_of_a_cluster_is_one_sentence(
    capfd: pytest.CaptureFixture[str], other: str
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        address = f"127.0.0.1:{server.server_port if other == 'http' else free_port()}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        started = time.monotonic()
        with pytest.raises(ConnectionError, match=f"^no Ray cluster answers at {address}$"):
            compat.published_release(address, timeout_s=1.0)
        assert time.monotonic() - started < 20  # Ray's own client tries for 40 s
        server.shutdown()
    lines = capfd.readouterr().err.splitlines()
    assert not [line for line in lines if "GCS" in line or "rpc_client" in line]


def test_a_missing_private_interface_is_incompatible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter, "RayParams", lambda: None)
    with pytest.raises(compat.Incompatible, match="dashboard_agent_listen_port"):
        with compat.node_options():
            pass
    monkeypatch.delattr(utils, "set_sigterm_handler")
    with pytest.raises(compat.Incompatible, match="set_sigterm_handler"):
        with compat.node_options():
            pass
    monkeypatch.setattr(deployment_state, "DeploymentState", type("State", (), {}))
    with pytest.raises(compat.Incompatible, match="DeploymentState"):
        compat.route_to_replicas_that_swap()
    server = uvicorn.Server(uvicorn.Config(lambda: None))
    del server.server_state.default_headers
    server.config.encoded_headers = []
    with pytest.raises(compat.Incompatible, match="default_headers"):
        compat.close_connections_after_response(server)
