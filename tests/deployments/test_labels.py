"""Models are placed on the nodes that `label_selector` names."""

import json
import subprocess
import sys

import pytest

from configs.settings import PROJECT_DIR

# In a process of its own, since it joins a cluster of two nodes.
TWO_NODES = """
import json, sys, time
from deployments.cluster import node, serve_api
node.prepare_environment()
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.schema import ServeDeploySchema
from ray.util.state import list_actors
from tests.deployments.conftest import MODELS_APP, model
from tests.engines import ECHO, SCRIPTED, TONE

args = {"include_dashboard": True, "dashboard_port": 0, "num_cpus": 1}
nodes = Cluster(True, head_node_args={**args, "labels": {"use": "speech"}})
nodes.add_node(num_cpus=1, labels={"use": "text"})
context = ray.init(nodes.address, namespace="serve", log_to_driver=False)
def on(use):
    return {"ray_actor_options": {"num_cpus": 0.1, "label_selector": {"use": use}}}
placed = {"TTSFast": "speech", "STT": "speech", "Chat": "text"}
configs = {"TTSFast": TONE, "STT": SCRIPTED, "Chat": ECHO}
entries = [{"name": "ModelIndex"}]
entries += [model(name, configs[name], num_replicas=2, **on(use)) for name, use in placed.items()]
app = {**MODELS_APP, "deployments": entries}
serve_api.deploy(f"http://{context.dashboard_url}", {"applications": [app]})
deadline = time.monotonic() + 120
while time.monotonic() < deadline:
    found = serve.status().applications.get("models")
    if found is not None and found.status in ("RUNNING", "DEPLOY_FAILED"):
        break
    time.sleep(0.2)
labels = {node["NodeID"]: node["Labels"].get("use") for node in ray.nodes()}
actors = list_actors(filters=[("state", "=", "ALIVE")], detail=True)
print(json.dumps(sorted({
    (name, labels[one.node_id])
    for one in actors for name in placed if f"models#{name}#" in (one.name or "")
})))
serve.shutdown()
ray.shutdown()
nodes.shutdown()
"""


@pytest.mark.ray
@pytest.mark.slow
def test_models_run_on_the_nodes_with_their_labels() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_NODES],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        ["Chat", "text"],
        ["STT", "speech"],
        ["TTSFast", "speech"],
    ]
