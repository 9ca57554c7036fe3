"""Writes the manifests of deploy/kubernetes that repeat another file: `make manifests`.

A test compares them with what this would write.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = {"cpu": "serve_config.yaml", "gpu": "configs/serve_gpu.yaml", "ha": "serve_config.yaml"}
CHAT_MODEL = "llm/qwen2_5_coder_0_5b"
"""Replaces `auto`, which only `make run` resolves: the model that suits a worker's 8 GiB. The image
`cpu-weights` has its weights, and those of the other models that a deployment wants."""
GATED_MODEL = "tts/csm"
"""Stays optional, so that the pods start without `HF_TOKEN`."""
GATEWAYS = {"cpu": 2, "gpu": 4, "ha": 3}
"""One in each worker pod: KubeRay calls a pod ready when its gateway answers."""
GPUS = 2
"""One in each of the two GPU nodes of the overlay `gpu`."""


class Dumper(yaml.SafeDumper):
    """Repeats values in place of YAML's aliases, and writes long texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


Dumper.add_representer(str, _text)


def dump(content: Any) -> str:
    return yaml.dump(content, Dumper=Dumper, sort_keys=False, width=100, allow_unicode=True)


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def serve_config(overlay: str) -> dict[str, Any]:
    """The configuration with a gateway on each worker. It has no surge, because the new and the old
    gateway of a pod would wait for each other."""
    config: dict[str, Any] = read(OVERLAYS[overlay])
    for application in config["applications"]:
        # YAML's merge keys put the merged options before the name.
        named = [{"name": entry["name"], **entry} for entry in application["deployments"]]
        application["deployments"] = named
        for deployment in named:
            if deployment["name"] == "Gateway":
                deployment |= {"num_replicas": GATEWAYS[overlay], "max_replicas_per_node": 1}
                del deployment["max_surge_percent"]
            if deployment.get("ray_actor_options", {}).get("num_gpus"):
                deployment["autoscaling_config"]["max_replicas"] = GPUS
            user_config = deployment.get("user_config", {})
            is_gated = user_config.get("wanted") == GATED_MODEL  # loaded if its weights are here
            if user_config.get("model") == "auto" and not is_gated:
                user_config["model"] = user_config.pop("wanted", CHAT_MODEL)
    return config


def generated() -> dict[Path, str]:
    """The content of each file."""
    files = {}
    for overlay, source in OVERLAYS.items():
        patch = {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "metadata": {"name": "antiphon"},
            "spec": {"serveConfigV2": dump(serve_config(overlay))},
        }
        files[KUBERNETES / overlay / "serve-config.yaml"] = _of(source) + dump(patch)
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "antiphon", "namespace": "antiphon"},
        "spec": read("telemetry/alerts.yaml"),
    }
    alerts = KUBERNETES / "monitoring" / "prometheus-rule.yaml"
    files[alerts] = _of("telemetry/alerts.yaml") + dump(rule)
    return files


def _of(source: str) -> str:
    return f"# Written by `make manifests` from {source}.\n"


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
