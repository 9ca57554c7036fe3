"""`antiphon deploy`: checks a configuration, shows what it changes, deploys it and waits for it."""

import sys
import time
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any

from yaml import YAMLError

from configs.environment import free_bytes, token
from configs.load import changed_at, explain
from configs.schema.models.upstream import UpstreamModelConfig
from configs.schema.serve import AUTO, ModelsArgs, ModelUserConfig
from configs.settings import Settings, load_settings_of_service, weights_dir
from deployments.cluster import node, serve_api
from deployments.cluster.killed import FOR_MEMORY
from deployments.cluster.readiness import local_url, report
from deployments.default_chat.choice import resolved
from deployments.replicas.canary import CANARY_PREFIX
from deployments.rollout import serve_config
from deployments.rollout.check import (
    MODELS_BUILDER,
    application_problems,
    flat,
    option_problems,
    resource_problems,
)
from deployments.rollout.serve_config import Config, entries
from models.errors import EngineError
from models.figures import beside
from models.registry import CHAT, KINDS, EngineKind, artefacts_of, files_of, size_of
from models.weights.store import WeightStore

TIMEOUT_S = 600.0  # a large model on a GPU loads for minutes
POLL_S = 0.5
GIB, GB = 1 << 30, 10**9
# Memory of Ray, and of a replica without weights. With the smallest chat model of `auto`, these
# estimate 3.5 GB for serve_config.yaml, and 4.5 GB with the largest. After use: 3.7 and 4.5 GB.
RAY_BYTES = 1_600_000_000
REPLICA_BYTES = 200_000_000
ANSWER_S = 15.0
REPORTED_S = 8.0  # replicas report failed swaps at once, and gateways ask for them every 5 s
OUTLIVES_S = 36.0  # a report outlives its replica by FORGET_S, plus the interval of the gateway


def deploy(file: Path, *, only_check: bool = False, dashboard: str | None = None) -> str:
    """Deploy the file to the running service; return the result as a sentence. Raises ValueError
    before anything is changed if the file is wrong or does not fit. Also raises ValueError if a
    replica could not load its model; the previous model then continues to serve."""
    settings = load_settings_of_service()
    node.prepare_environment(settings)
    config = serve_config.read_config(file)
    if problems := application_problems(config):
        raise ValueError("\n".join(problems))
    dashboard = dashboard or serve_api.dashboard()
    problems = option_problems(config) or resource_problems(config, serve_api.nodes(dashboard))
    if problems:
        raise ValueError("\n".join([*problems, *model_problems(resolved(config))]))
    deploy_config(config, settings, dashboard, only_check=only_check)
    return f"{file} {'can be' if only_check else 'is'} deployed"


def deploy_config(
    config: Config, settings: Settings, dashboard: str, *, only_check: bool = False
) -> None:
    """Deploy a configuration that was read from a file or from the cluster. Raises ValueError."""
    running = serve_api.applications(dashboard)
    config = resolved(config, running)
    if problems := model_problems(config):
        raise ValueError("\n".join(problems))
    try_again(running, config, (report(settings) or (0, {}))[1])
    changes, swapped = differences(running, config)
    replaces = any(".user_config" not in path for path in changed_options(running, config))
    if problem := memory_problem(config, loads(running, config)):
        raise ValueError(problem)
    lines = [*(changes or ["nothing changes"]), *unset_keys(config)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    if only_check:
        return
    serve_api.deploy(dashboard, config)
    wait(
        dashboard,
        {application["name"] for application in config["applications"]},
        restarts=replaces,
    )
    if swapped:
        time.sleep(REPORTED_S)
    check_swaps(settings, OUTLIVES_S if replaces else 0.0)


def try_again(running: dict[str, Any], config: Config, readiness: dict[str, Any]) -> None:
    """Increment `attempt`, since Serve reconfigures a replica only after a change. This is done for
    each model that is still wanted, but could not start or was not loaded (as the gateway's
    `readiness` says), and for each whose files were edited since it was deployed."""
    before = {
        entry["name"]: (dict(entry.get("user_config") or {}), application["last_deployed_time_s"])
        for application in running.values()
        for entry in entries(application.get("deployed_app_config") or {})
    }
    refused = {place.partition("/")[2] for place in serve_api.failures(running)}
    refused |= (readiness.get("models") or {}).keys()
    for name, (kind, entry) in models_of(config).items():
        deployed, deployed_at = before.get(name, ({}, 0.0))
        wanted = dict(entry.get("user_config") or {})
        attempt = deployed.pop("attempt", 0)
        wanted.pop("attempt", None)
        if wanted == deployed:
            attempt += name in refused or _edited_at(kind, wanted) > deployed_at
        entry["user_config"] = {**wanted, "attempt": attempt} if attempt else wanted


def _edited_at(kind: EngineKind[Any], user_config: Config) -> float:
    """Return when the configurations of the models, or files that they read in place, were last
    changed or replaced (seconds since 1970)."""
    times = [0.0]
    for model in ModelUserConfig.model_validate(user_config).models:
        times.append(changed_at(model))
        times += [file.stat().st_ctime for file in files_of(kind.read(model))]
    return max(times)


def unset_keys(config: Config) -> list[str]:
    """Warn of models of other services whose key is not set in this environment."""
    return [
        f"{name}: {model} needs its key in the variable {shape.key_env}, which is not set here"
        for name, (kind, entry) in models_of(config).items()
        for model in ModelUserConfig.model_validate(entry["user_config"]).models
        if isinstance(shape := kind.read(model), UpstreamModelConfig)
        and shape.key_env
        and token(shape.key_env) is None
    ]


def wait(dashboard: str, names: set[str], *, restarts: bool = True) -> None:
    """Wait until the applications run. Replicas that wait for room may be missing, unless running
    ones were restarted. Raises ValueError if an application cannot run, or after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        state = serve_api.applications(dashboard)
        if failed := serve_api.failures(state):
            raise ValueError("\n".join(f"{place}: {why}" for place, why in failed.items()))
        late = [line for name in sorted(names) for line in _unfinished(state, name, restarts)]
        if not late:
            return
        if time.monotonic() > deadline:
            raise ValueError(f"not running after {TIMEOUT_S:.0f} s: {'; '.join(late)}")
        time.sleep(POLL_S)


def _unfinished(state: dict[str, Any], name: str, restarts: bool) -> list[str]:
    """Return a line for each deployment of an application that `wait` waits for."""
    application = state.get(name, {})
    if application.get("status") == "RUNNING":
        return []
    rest = {
        deployment: status
        for deployment, status in application.get("deployments", {}).items()
        if status["status"] != "HEALTHY"
    }
    if rest and not restarts and all(map(_only_lacks_room, rest.values())):
        return []
    lines = [f"{name}/{deployment}: {status['message']}" for deployment, status in rest.items()]
    return [line.rstrip(": ") for line in lines] or [name]


def _only_lacks_room(deployment: dict[str, Any]) -> bool:
    """Whether all replicas that do not run yet wait for resources, as Serve's message says after 30
    s."""
    states = {replica["state"] for replica in deployment["replicas"]}
    return states == {"RUNNING", "STARTING"} and "to be scheduled" in deployment["message"]


def check_swaps(settings: Settings, outlives_s: float) -> None:
    """Raise ValueError if a replica keeps its previous model, which Serve does not notice, or if
    the gateway does not report within ANSWER_S that it is ready. Reports of replaced replicas
    remain for up to `outlives_s`."""
    began = time.monotonic()
    deadline = began + ANSWER_S
    while True:
        answer, now = report(settings), time.monotonic()
        if answer is not None and answer[0] == 200:
            if "models" not in answer[1].get("degraded", ()):
                return
            if now >= began + outlives_s:
                break
        elif now > deadline:
            if answer is None:
                raise ValueError(f"the gateway does not answer at {local_url(settings)}/readyz")
            raise ValueError(f"the gateway answers {answer[0]}: {answer[1].get('message')}")
        time.sleep(POLL_S)
    hidden = "GET /models has the reason; OPERATOR_TOKEN or METRICS_TOKEN shows it here"
    reasons = answer[1].get("models") or {"a deployment": hidden}
    lines = [
        f"{name}: {why}"
        if why.startswith(CANARY_PREFIX)
        else f"{name} keeps its previous model: {why}"
        for name, why in reasons.items()
    ]
    raise ValueError("\n".join(lines))


def models_of(config: Config) -> dict[str, tuple[EngineKind[Any], Config]]:
    """Return the kind and the entry of each deployment of a model, by its name."""
    models: dict[str, tuple[EngineKind[Any], Config]] = {}
    for application in config["applications"]:
        if application.get("import_path") == MODELS_BUILDER:
            configured = {entry["name"]: entry for entry in entries(application)}
            args = ModelsArgs.model_validate(application.get("args") or {})
            for kind, names in args.by_kind.items():
                models |= {name: (KINDS[kind], configured[name]) for name in names}
    return models


def model_problems(config: Config) -> list[str]:
    """Find problems of models. These are configurations that cannot be read, missing weights,
    models that are named twice (instead of a deployment with more replicas), names that two models
    share, and fallbacks that are no model."""
    problems: list[str] = []
    deployments: dict[str, str] = {}  # deployments by the id of their model
    aliases: list[tuple[str, str]] = []  # deployment and alias
    fallbacks: list[tuple[str, str]] = []  # deployment and model
    for name, (kind, entry) in models_of(config).items():
        model = "user_config"
        try:
            wanted = ModelUserConfig.model_validate(entry.get("user_config") or {})
            for model in reversed(wanted.models):
                shape = kind.read(model)
                for artefact in artefacts_of(shape):
                    WeightStore(weights_dir()).converted(artefact)
                for file in files_of(shape):
                    file.stat()
            if not wanted.models:  # AUTO still waits for weights
                if kind is not CHAT and wanted.wanted is None:
                    problems.append(f"{name}: only a chat model can be {AUTO!r} without `wanted`")
                continue
            if (other := deployments.setdefault(shape.id, name)) != name:
                problems.append(f"{name} and {other} have the same model, {shape.id!r}")
            aliases += [(name, alias) for alias in shape.aliases]
            if kind is CHAT and shape.fallback is not None:
                fallbacks.append((name, shape.fallback))
        except (EngineError, OSError, ValueError, YAMLError) as error:
            problems.append(f"{name}: {model}: {explain(error)}")
    for name, alias in aliases:
        if (other := deployments.setdefault(alias, name)) != name:
            problems.append(f"{name} and {other} both answer to {alias!r}")
    problems += [
        f"{name}: its fallback {fallback!r} is no model"
        for name, fallback in fallbacks
        if fallback not in deployments
    ]
    return problems


def loads(running: dict[str, Any], config: Config) -> dict[str, int]:
    """Count, by model, the replicas that load their model while others run: all replicas of a
    swapped or new model, added replicas, and restarted replicas that begin before the old ones
    stop."""
    changed = changed_options(running, config)
    models = models_of(config)
    counts = {}
    for application in config["applications"]:
        name = application["name"]
        deployed = running.get(name, {}).get("deployed_app_config") or {}
        before = {entry["name"]: least_replicas(entry) for entry in entries(deployed)}
        for entry in entries(application):
            path = f"{name}.deployments.{entry['name']}"
            wanted = least_replicas(entry)
            count = max(0, wanted - before.get(entry["name"], 0))
            if _changes(changed, [f"{path}.user_config"]):
                count = wanted
            elif _changes(changed, [*_restarts(name), f"{path}.ray_actor_options"]):
                surge = ceil(wanted * entry.get("max_surge_percent", 0) / 100)
                count = min(wanted, count + surge)
            if count and entry["name"] in models:
                counts[entry["name"]] = count
    return counts


def least_replicas(entry: Config) -> int:
    """Return the minimum or initial number of replicas."""
    scaling = entry.get("autoscaling_config") or {"min_replicas": entry.get("num_replicas", 1)}
    counts = [scaling.get("min_replicas", 1), scaling.get("initial_replicas")]
    return max((count for count in counts if isinstance(count, int)), default=1)


def memory_problem(config: Config, replicas: dict[str, int]) -> str | None:
    """Describe the problem if the weights of these `replicas` do not fit in memory beside what
    runs. A model needs at least its weights, so this refuses only what cannot work. Weights on a
    GPU are not counted, and the memory of other machines is not known."""
    need = sum(_replica_bytes(config, replicas).values())
    if need <= (free := free_bytes()):
        return None
    needs, has = beside(need / GIB, free / GIB, 1)
    return (
        f"the weights of {', '.join(sorted(replicas))} need {needs} GiB of memory beside"
        f" what runs, and {has} GiB are free"
    )


def memory_warning(config: Config, free: int) -> str | None:
    """Warn if `free` (bytes) is less than the service takes after a start, by estimate."""
    try:
        replicas = _replica_bytes(config, loads({}, config))
    except (EngineError, OSError, ValueError, YAMLError):  # the model's load reports the problem
        return None
    need = RAY_BYTES + sum(size + REPLICA_BYTES for size in replicas.values())
    if need <= free:
        return None
    has, needs = beside(free / GB, need / GB, 1)
    return (
        f"{has} GB of memory are free, and the service with its models needs about"
        f" {needs} GB: Ray may end processes. {FOR_MEMORY}"
    )


def _replica_bytes(config: Config, replicas: dict[str, int]) -> dict[str, int]:
    """Return the bytes of the weights of these `replicas` that are not on a GPU, by model. Raises
    EngineError, OSError, ValueError or YAMLError."""
    store = WeightStore(weights_dir())
    sizes = {}
    for name, (kind, entry) in models_of(config).items():
        resources = entry.get("ray_actor_options") or {}
        if name in replicas and not resources.get("num_gpus"):
            size = 0
            for model in ModelUserConfig.model_validate(entry["user_config"]).models:
                size += size_of(kind.read(model), store)
            sizes[name] = max(size, int(resources.get("memory") or 0)) * replicas[name]
    return sizes


def differences(running: dict[str, Any], config: Config) -> tuple[list[str], set[str]]:
    """Return a line for each application or option that changes, and the models to be swapped."""
    wanted = {application["name"]: application for application in config["applications"]}
    lines = [f"{name}: removed" for name in running if name not in wanted]
    lines += [f"{name}: added" for name in wanted if name not in running]
    changed = changed_options(running, config)
    for path, (before, after) in changed.items():
        if path.partition(".")[0] in running.keys() & wanted.keys():
            lines.append(f"{path}: {before!r} -> {after!r}")
    for name in running.keys() & wanted.keys():
        if _changes(changed, _restarts(name)):
            lines.append(f"{name}: all its deployments restart")
    loaded = {path.split(".")[2] for path in changed if ".user_config" in path}
    return lines, loaded & models_of(config).keys()


def changed_options(running: dict[str, Any], config: Config) -> dict[str, tuple[Any, Any]]:
    """Return the values before and after of each option that changes, by its path."""
    before = flat({name: app.get("deployed_app_config") for name, app in running.items()})
    # Serve copies it into each application.
    shared = {"logging_config": config.get("logging_config")}
    after = flat({app["name"]: {**shared, **app} for app in config["applications"]})
    return {
        path: (before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
        and (before.get(path) or after.get(path))  # Serve adds empty defaults
    }


def _restarts(application: str) -> list[str]:
    """Return the options of an application whose change restarts all its deployments."""
    return [f"{application}.{option}" for option in ("import_path", "args", "runtime_env")]


def _changes(changed: Iterable[str], options: list[str]) -> bool:
    """Whether one of the `options`, or a part of it, has changed."""
    return any(f"{path}.".startswith(tuple(f"{option}." for option in options)) for path in changed)
