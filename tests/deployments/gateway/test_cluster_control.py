"""The operator's hold on the cluster, over a dashboard that records what would reach Ray Serve."""

import pytest
import yaml

from api.http.errors import ApiError
from deployments.gateway import cluster_control
from deployments.gateway.cluster_control import ServeControl
from pipelines.errors import InvalidRequest
from tests.deployments.rollout.test_deploy import Cluster, cluster, entry

__all__ = ["cluster"]  # a fixture


@pytest.fixture
def control(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ServeControl:
    url = f"http://127.0.0.1:{cluster.server_port}"
    monkeypatch.setattr(cluster_control, "dashboard_url", lambda: url)
    monkeypatch.setenv("RAY_DASHBOARD_PORT", "1")  # as on a machine that joined
    monkeypatch.setenv("RAY_GRAFANA_HOST", "http://127.0.0.1:3000")
    made = ServeControl()
    assert made.links == {"ray": url, "grafana": "http://127.0.0.1:3000"}
    return made


@pytest.mark.slow
async def test_the_running_configuration_is_shown_checked_and_deployed(
    control: ServeControl, cluster: Cluster
) -> None:
    running = await control.running()
    said = "nothing changes\nthe configuration can be deployed"
    assert await control.deploy(running, only_check=True) == (True, said)
    assert len(cluster.deployed) == 1
    config = yaml.safe_load(running)
    entry(config, "TTSFast")["max_ongoing_requests"] = 77
    ok, said = await control.deploy(yaml.safe_dump(config), only_check=False)
    assert ok and said.endswith("the configuration is deployed")
    assert "models.deployments.TTSFast.max_ongoing_requests: " in said and "-> 77" in said
    assert entry(cluster.deployed[-1], "TTSFast")["max_ongoing_requests"] == 77


async def test_a_wrong_configuration_is_refused_with_the_sentence_of_the_command(
    control: ServeControl, cluster: Cluster
) -> None:
    with pytest.raises(InvalidRequest, match="^the configuration cannot be read: line 1, column"):
        await control.deploy("applications: [", only_check=False)
    config = yaml.safe_load(await control.running())
    entry(config, "TTSFast").update(user_config={"model": "tts/none"}, max_ongoing_reqests=8)
    with pytest.raises(InvalidRequest, match="^unknown option: .*reqests\nTTSFast: tts/none"):
        await control.deploy(yaml.safe_dump(config), only_check=False)
    assert len(cluster.deployed) == 1


@pytest.mark.slow
async def test_a_deployment_that_fails_is_no_wrong_configuration(
    control: ServeControl, cluster: Cluster
) -> None:
    cluster.status = "DEPLOY_FAILED"
    assert "no reason is given" in (await control.failures()).values()
    ok, said = await control.deploy(await control.running(), only_check=False)
    assert not ok and said.startswith("nothing changes\n") and "no reason is given" in said


async def test_without_a_dashboard_nothing_is_known(
    control: ServeControl, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(control.links, "ray", "http://127.0.0.1:1")
    for work in (control.running(), control.deploy("applications: []", only_check=True)):
        with pytest.raises(ApiError, match="Ray's dashboard does not answer"):
            await work
