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
# The arguments by import path, and the deployments besides models.
BUILDERS: dict[str, tuple[type[StrictModel], tuple[str, ...]]] = {
    MODELS_BUILDER: (ModelsArgs, ("ModelIndex",)),
    GATEWAY_BUILDER: (GatewayArgs, ("Gateway",)),
    WYOMING_BUILDER: (WorkerArgs, ("Wyoming",)),
    "deployments.app:build_worker": (WorkerArgs, ("Worker",)),
}


def application_problems(config: Config) -> list[str]:
    """Find wrong applications, arguments and names of deployments, without importing Ray."""
    applications = config["applications"]
    if not all(isinstance(app, dict) and isinstance(app.get("name"), str) for app in applications):
        return ["each of `applications` must be a mapping with a name"]
    builders = {app["name"]: str(app.get("import_path")) for app in applications}
    problems = []
    if GATEWAY_BUILDER not in builders.values():
        problems.append("no application has the gateway, without which the service does not answer")
    for application in applications:
        name, path = application["name"], builders[application["name"]]
        if path in BUILDERS:
            wrong = _problems(application, *BUILDERS[path], builders)
        else:
            wrong = [] if _exists(path) else [f"import_path {path!r} names no module"]
        problems += [f"application {name!r}: {problem}" for problem in wrong]
    return problems


def _problems(
    application: Config, shape: type[StrictModel], own: tuple[str, ...], builders: dict[str, str]
) -> list[str]:
    """List what is wrong with an application that has `own` deployments besides models.

    `builders` has the import path of each application.
    """
    try:
        args: Any = shape.model_validate(application.get("args") or {})
    except ValidationError as error:
        return [f"args: {explain(error)}"]
    kinds = args.by_kind.values() if isinstance(args, ModelsArgs) else ()
    models = [name for names in kinds for name in names]
    listed, named = [str(entry.get("name")) for entry in entries(application)], [*own, *models]
    counts = Counter(listed) | Counter(named)
    problems = [f"{name!r} is listed {times} times" for name, times in counts.items() if times > 1]
    others = [name for name in listed if name not in named]
    problems += [
        f"{name!r} is not among the deployments of args: {', '.join(named)}" for name in others
    ]
    problems += [f"{name!r} of args has no entry" for name in models if name not in listed]
    problems += [
        f"{entry['name']} takes no user_config"
        for entry in entries(application)
        if entry.get("name") in own and "user_config" in entry
    ]
    if isinstance(args, WorkerArgs) and builders.get(args.models_app) != MODELS_BUILDER:
        problems.append(f"args.models_app is {args.models_app!r}, which has no models")
    return problems


def _exists(path: str) -> bool:
    """Whether the module of `module:name` exists. Importing it could import Ray too early."""
    try:
        return find_spec(path.replace(":", ".").rpartition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def option_problems(config: Config) -> list[str]:
    """Find options that Ray Serve would refuse, or does not know and would ignore."""
    from ray.serve.config import AutoscalingConfig
    from ray.serve.schema import ServeDeploySchema

    try:
        accepted = ServeDeploySchema.model_validate(config).model_dump(exclude_unset=True)
    except ValidationError as error:
        return [explain(error)]
    unknown = flat(config).keys() - flat(accepted).keys()
    for application in config["applications"]:
        for entry in entries(application):  # Serve keeps these as they are
            scaling = entry.get("autoscaling_config") or {}
            wrong = scaling.keys() - AutoscalingConfig.model_fields.keys()
            unknown |= {f"{entry['name']}.autoscaling_config.{key}" for key in wrong}
    return [f"unknown option: {path}" for path in sorted(unknown)]


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the options of a configuration by their paths; entries of lists are identified by
    their names."""
    if isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value):
        value = {item["name"]: item for item in value}
    if not isinstance(value, dict) or not value:
        return {path: value}
    options: dict[str, Any] = {}
    for key, inner in value.items():
        options |= flat(inner, f"{path}.{key}" if path else str(key))
    return options
