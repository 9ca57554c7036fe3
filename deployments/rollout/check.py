"""Checks a configuration before it is deployed.

Ray Serve ignores options that it does not know, and takes the name of a missing file for an import
path. `deployments.rollout.deploy` checks the models, too.
"""

from collections import Counter
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from configs.load import explain
from configs.schema.base import StrictModel
from configs.schema.serve import GatewayArgs, ModelsArgs, WorkerArgs
from deployments.rollout.serve_config import Config, entries

MODELS_BUILDER = "deployments.app:build_models"
GATEWAY_BUILDER = "deployments.app:build_gateway"
WYOMING_BUILDER = "deployments.app:build_wyoming"
# By import path: the arguments, and the deployments besides models.
BUILDERS: dict[str, tuple[type[StrictModel], tuple[str, ...]]] = {
    MODELS_BUILDER: (ModelsArgs, ("ModelIndex",)),
    GATEWAY_BUILDER: (GatewayArgs, ("Gateway",)),
    WYOMING_BUILDER: (WorkerArgs, ("Wyoming",)),
    "deployments.app:build_worker": (WorkerArgs, ("Worker",)),
}


def application_problems(config: Config) -> list[str]:
    """Wrong applications, arguments and names of deployments. Does not import Ray."""
    applications = config["applications"]
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in applications):
        return ["each of `applications` has to be a mapping with a name"]
    builders = {one["name"]: str(one.get("import_path")) for one in applications}
    found = []
    if GATEWAY_BUILDER not in builders.values():
        found.append("no application has the gateway, without which the service does not answer")
    for application in applications:
        name, path = application["name"], builders[application["name"]]
        if path in BUILDERS:
            wrong = _problems(application, *BUILDERS[path], builders)
        else:
            wrong = [] if _exists(path) else [f"import_path {path!r} names no module"]
        found += [f"application {name!r}: {one}" for one in wrong]
    return found


def _problems(
    application: Config, shape: type[StrictModel], own: tuple[str, ...], builders: dict[str, str]
) -> list[str]:
    """Of an application with `own` deployments besides models; `builders` are import paths."""
    try:
        args: Any = shape.model_validate(application.get("args") or {})
    except ValidationError as error:
        return [f"args: {explain(error)}"]
    models = [*args.tts, *args.stt, *args.chat] if isinstance(args, ModelsArgs) else []
    listed, named = [str(one.get("name")) for one in entries(application)], [*own, *models]
    counts = Counter(listed) | Counter(named)
    found = [f"{name!r} is listed {times} times" for name, times in counts.items() if times > 1]
    others = [name for name in listed if name not in named]
    found += [f"args name no deployment {name!r}, only {', '.join(named)}" for name in others]
    found += [f"{name!r} of args has no entry" for name in models if name not in listed]
    found += [
        f"{one['name']} takes no user_config"
        for one in entries(application)
        if one.get("name") in own and "user_config" in one
    ]
    if isinstance(args, WorkerArgs) and builders.get(args.models_app) != MODELS_BUILDER:
        found.append(f"args.models_app is {args.models_app!r}, which has no models")
    return found


def _exists(path: str) -> bool:
    """Whether there is the module of `module:name`; to import it could import Ray too early."""
    try:
        return find_spec(path.replace(":", ".").rpartition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def option_problems(config: Config) -> list[str]:
    """Options that Ray Serve would refuse, or not know and ignore."""
    from ray.serve.config import AutoscalingConfig
    from ray.serve.schema import ServeDeploySchema

    try:
        known = ServeDeploySchema.model_validate(config).model_dump(exclude_unset=True)
    except ValidationError as error:
        return [explain(error)]
    unknown = flat(config).keys() - flat(known).keys()
    for application in config["applications"]:
        for entry in entries(application):  # Serve keeps these as they are
            scaling = entry.get("autoscaling_config") or {}
            wrong = scaling.keys() - AutoscalingConfig.model_fields.keys()
            unknown |= {f"{entry['name']}.autoscaling_config.{key}" for key in wrong}
    return [f"unknown option: {path}" for path in sorted(unknown)]


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The options of a configuration by their paths; entries of lists are known by their names."""
    if isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
        value = {one["name"]: one for one in value}
    if not isinstance(value, dict) or not value:
        return {path: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{path}.{key}" if path else str(key))
    return found
