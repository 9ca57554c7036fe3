"""Checks a configuration before it is deployed. Ray Serve ignores options that it does not know,
and reads the name of a missing file as an import path. `deployments.rollout.deploy` checks the
models, too."""

from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from inspect import signature
from pkgutil import resolve_name
from typing import Any

from pydantic import BaseModel, ValidationError

from configs.load import explain
from configs.schema.base import StrictModel
from configs.schema.serve import GatewayArgs, ModelsArgs, WorkerArgs
from deployments.rollout.serve_config import Config, entries

MODELS_BUILDER = "deployments.app:build_models"
GATEWAY_BUILDER = "deployments.app:build_gateway"
WYOMING_BUILDER = "deployments.app:build_wyoming"
# By import path: the class of the arguments, and the deployments besides models.
BUILDERS: dict[str, tuple[type[StrictModel], tuple[str, ...]]] = {
    MODELS_BUILDER: (ModelsArgs, ("ModelIndex",)),
    GATEWAY_BUILDER: (GatewayArgs, ("Gateway",)),
    WYOMING_BUILDER: (WorkerArgs, ("Wyoming",)),
    "deployments.app:build_worker": (WorkerArgs, ("Worker",)),
}
RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}  # Ray's names of options


def application_problems(config: Config) -> list[str]:
    """Find wrong applications, arguments and names of deployments, without importing Ray."""
    applications = config["applications"]
    if not all(isinstance(app, dict) and isinstance(app.get("name"), str) for app in applications):
        return ["each of `applications` must be a mapping with a name"]
    builders = {app["name"]: str(app.get("import_path")) for app in applications}
    problems = []
    if GATEWAY_BUILDER not in builders.values():
        problems.append("no application has the gateway, without which the service does not answer")
    problems += [
        f"application {name!r}: import_path {path!r} names no module"
        for name, path in builders.items()
        if path not in BUILDERS and not _exists(path)
    ]
    return problems + build_problems(applications)


def build_problems(applications: list[Config]) -> list[str]:
    """Find wrong arguments and names of deployments in the applications that this project builds.
    The builders check this, too, so that Ray's own commands can be used."""
    builders = {app["name"]: str(app.get("import_path")) for app in applications}
    return [
        f"application {application['name']!r}: {problem}"
        for application in applications
        if (path := builders[application["name"]]) in BUILDERS
        for problem in _problems(application, *BUILDERS[path], builders)
    ]


def _problems(
    application: Config, shape: type[StrictModel], own: tuple[str, ...], builders: dict[str, str]
) -> list[str]:
    """List what is wrong with an application that has `own` deployments besides models. `builders`
    has the import path of each application."""
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
    """Find options that Ray Serve would refuse or ignore. Each problem is a line with the option's
    path."""
    from ray.serve.schema import DeploymentSchema, ServeDeploySchema

    problems: list[str] = []
    for path, entry in _deployments(config).items():
        replicas, scaling = entry.get("num_replicas"), entry.get("autoscaling_config")
        if isinstance(replicas, str) and replicas != "auto":
            problems.append(f"{path}.num_replicas is {replicas!r}, but must be a number or auto")
        if isinstance(scaling, dict):  # Serve checks it only after the deployment has begun
            most = {"max_replicas": 100} if replicas == "auto" else {}  # Serve's default
            where = f"{path}.autoscaling_config"
            problems += _problems_of(_read_scaling, {**most, **scaling}, where)
            entry = {**entry, "autoscaling_config": {}}
        problems += _problems_of(_reader(DeploymentSchema), entry, path)
        options = entry.get("ray_actor_options")
        gpus = options.get("num_gpus") if isinstance(options, dict) else None
        if isinstance(gpus, float) and gpus > 1 and not gpus.is_integer():
            problems.append(
                f"{path}.ray_actor_options.num_gpus is {gpus}, but a number above 1 must be whole"
            )
    return problems or _problems_of(_reader(ServeDeploySchema), config)


def resource_problems(config: Config, nodes: list[dict[str, float]]) -> list[str]:
    """Find replicas that fit on none of the `nodes`, which are resources by Ray's names."""
    problems = []
    for path, entry in _deployments(config).items():
        options = entry.get("ray_actor_options") or {}
        wanted = {name: options.get(option) for option, name in RESOURCES.items()}
        needs = {name: n for name, n in (wanted | (options.get("resources") or {})).items() if n}
        if not any(all(node.get(name, 0) >= needs[name] for name in needs) for node in nodes):
            most = {name: max(node.get(name, 0) for node in nodes) for name in needs}
            problems.append(
                f"{path}.ray_actor_options: a replica needs {_amounts(needs)}, and no machine has"
                f" that; at most {_amounts(most)}"
            )
    return problems


def _amounts(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:,.12g} {name}" for name, amount in resources.items())


def _deployments(config: Config) -> dict[str, Config]:
    """Return the entries of all deployments by their paths."""
    return {
        f"applications.{application['name']}.deployments.{entry.get('name')}": entry
        for application in config["applications"]
        for entry in entries(application)
    }


def _reader(schema: type[BaseModel]) -> Callable[[Config], Config]:
    return lambda given: schema.model_validate(given).model_dump(exclude_unset=True)


def _read_scaling(given: Config) -> Config:
    """Return an `autoscaling_config` as Serve reads it. Raises the errors of its policy's module,
    and TypeError for wrong arguments of the policy."""
    from ray.serve.config import AutoscalingConfig

    scaling = AutoscalingConfig(**given)
    policy = resolve_name(str(scaling.policy.policy_function))
    if isinstance(policy, type):
        signature(policy).bind(**scaling.policy.policy_kwargs)
    return scaling.model_dump(exclude_unset=True)


def _problems_of(read: Callable[[Config], Config], given: Config, path: str = "") -> list[str]:
    """List the options at `path` that `read` refuses, or else those that it drops."""
    try:
        return [
            f"unknown option: {option}"
            for option in sorted(flat(given, path).keys() - flat(read(given), path).keys())
        ]
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        return [
            f"{_place(given, path, fault['loc'])}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in faults
        ]
    except Exception as error:  # any error: Serve imports modules that the options name
        return [f"{path}: {explain(error)}".removeprefix(": ")]


def _place(given: Any, path: str, keys: tuple[int | str, ...]) -> str:
    """Return the path of a fault; entries of lists are identified by their names."""
    for key in keys:
        given = given[key] if isinstance(given, list) or key in (given or ()) else None
        name = given.get("name", key) if isinstance(given, dict) and key != "name" else key
        path = f"{path}.{name if isinstance(key, int) else key}".removeprefix(".")
    return path


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
