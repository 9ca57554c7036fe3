"""The private interfaces of Ray and uvicorn are those that the service was tested with."""

import pytest
import uvicorn
from ray._private import parameter

from deployments import compat


def test_the_installed_versions_are_the_tested_ones() -> None:
    assert compat.untested_versions() == []


def test_an_untested_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compat.TESTED, "uvicorn", "0.1")
    (sentence,) = compat.untested_versions()
    assert sentence.startswith("uvicorn ") and sentence.endswith("tested with 0.1.")


def test_ray_parameters_are_patched_only_inside_the_context_manager() -> None:
    shipped = parameter.RayParams
    with compat.any_dashboard_agent_port():
        assert parameter.RayParams().dashboard_agent_listen_port == 0
    assert parameter.RayParams is shipped


def test_a_missing_private_interface_is_incompatible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter, "RayParams", lambda: None)
    with pytest.raises(compat.Incompatible, match="dashboard_agent_listen_port"):
        with compat.any_dashboard_agent_port():
            pass
    server = uvicorn.Server(uvicorn.Config(lambda: None))
    del server.server_state.default_headers
    server.config.encoded_headers = []
    with pytest.raises(compat.Incompatible, match="default_headers"):
        compat.close_connections_after_response(server)
