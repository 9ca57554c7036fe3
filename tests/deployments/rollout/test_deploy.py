"""`antiphon deploy` against a dashboard that records what would reach Ray Serve."""

import asyncio
import copy
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.settings import load_settings
from deployments.main import prepare_database
from deployments.rollout import deploy as command
from tests.deployments.cli.operated import main
from tests.engines import ECHO, TONE, TONE_LOW
from tests.patience import PATIENCE_S
from tests.promises.conftest import config_without_weights

Printed = pytest.CaptureFixture[str]

SWAPPED = {"TTSFast": f"{TONE_LOW} cannot be loaded: no memory"}
CHAT = "applications.models.deployments.Chat"
REFUSED = "the canary was refused: llm/new cannot be loaded: no memory"


class Cluster(ThreadingHTTPServer):
    """Serve's API and the gateway's /readyz on one port; `deployed` are the accepted configs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.deployed: list[dict[str, Any]] = []
        self.deployed_at = time.time()
        self.status = "RUNNING"
        self.deployments: dict[str, Any] = {}
        self.ready: dict[str, Any] = {"status": "ok", "degraded": []}
        self.ready_before: list[dict[str, Any]] = []  # the next answers, before `ready`
        self.ready_statuses = [200]  # of the next answers; the last one stays
        self.headers: list[str | None] = []

    def state(self) -> dict[str, Any]:
        applications = self.deployed[-1]["applications"] if self.deployed else []
        return {
            one["name"]: {
                "status": self.status,
                "message": "",
                # As Serve, which copies it.
                "deployed_app_config": {
                    "logging_config": self.deployed[-1].get("logging_config"),
                    **one,
                },
                "deployments": self.deployments if one["name"] == "models" else {},
                "last_deployed_time_s": self.deployed_at,
            }
            for one in applications
        }


class _Handler(BaseHTTPRequestHandler):
    server: Cluster

    def do_GET(self) -> None:
        self.server.headers.append(self.headers["Authorization"])
        ready = self.path == "/readyz"
        statuses = self.server.ready_statuses if ready else [200]
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        if self.path.startswith("/api/v0/nodes"):
            node = {"state": "ALIVE", "resources_total": {"CPU": 2.0, "memory": float(64 << 30)}}
            self._answer({"data": {"result": {"result": [node]}}})
        elif not ready:
            self._answer({"applications": self.server.state()})
        elif self.server.ready_before:
            self._answer(self.server.ready_before.pop(0), status)
        else:
            self._answer(self.server.ready, status)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.deployed.append(json.loads(body))
        self.server.deployed_at = time.time()
        self._answer({})

    def _answer(self, value: dict[str, Any], status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A service that has the configuration of `file` without a change."""
    with Cluster() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("PORT", "RAY_DASHBOARD_PORT"):
            monkeypatch.setenv(name, str(server.server_port))
        monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "data"))
        monkeypatch.setenv("HOST", "127.0.0.1")
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "PYTHONPATH"):
            monkeypatch.setenv(name, "")  # restored after the test, which sets them
            monkeypatch.delenv(name)
        monkeypatch.delenv("DATABASE_URL", raising=False)
        monkeypatch.setattr(command, "REPORTED_S", 0.0)
        monkeypatch.setattr(command, "ANSWER_S", 0.3)
        monkeypatch.setattr(command, "POLL_S", 0.01)
        asyncio.run(prepare_database(load_settings()))
        server.deployed.append(config_without_weights())
        yield server
        server.shutdown()


def write(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    return str(file)


def application(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in config["applications"] if one["name"] == name)
    return found


def entry(config: dict[str, Any], deployment: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in application(config, "models")["deployments"] if one["name"] == deployment
    )
    return found


def refused(capsys: Printed, *arguments: str) -> str:
    """The message of a deployment that ends with status 1."""
    with pytest.raises(SystemExit) as caught:
        main(["deploy", *arguments])
    assert isinstance(caught.value.code, str) and "Traceback" not in caught.value.code
    return caught.value.code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: [Errno 2] No such file or directory"),
        ("applications: [", "cannot be read: line 1, column 16: "),
        ("- a", "holds no configuration of Ray Serve"),
        ("applications: 5", "holds no configuration of Ray Serve"),
        ("applications: [a]", "each of `applications` must be a mapping with a name"),
        ("applications: []", "no application has the gateway"),
    ],
)
def test_a_file_without_a_configuration_is_refused_and_nothing_is_deployed(
    cluster: Cluster, tmp_path: Path, capsys: Printed, text: str | None, message: str
) -> None:
    file = tmp_path / "serve_confg.yaml"
    if text is not None:
        file.write_text(text)
    assert message in refused(capsys, str(file))
    assert len(cluster.deployed) == 1


def misspell(config: dict[str, Any], case: str) -> None:
    """Changes the configuration as one operator has or another could have."""
    models, chat = application(config, "models"), entry(config, "Chat")
    match case:
        case "option":
            chat["max_ongoing_reqests"] = 8
        case "option and model":
            chat |= {"max_ongoing_reqests": 8, "user_config": {"model": "llm/none"}}
        case "scaling":
            chat["autoscaling_config"]["min_replica"] = 1
        case "resources":
            chat["ray_actor_options"]["num_cpu"] = 1
        case "top":
            config["loging_config"] = {}
        case "value":
            chat["max_ongoing_requests"] = -1
        case "delay":
            chat["autoscaling_config"]["upscale_delay_s"] = "ten"
        case "replicas":
            chat["autoscaling_config"] |= {"min_replicas": 40, "max_replicas": 2}
        case "count":
            chat |= {"num_replicas": "two", "autoscaling_config": None}
        case "policy":
            chat["autoscaling_config"]["policy"] = {"policy_function": "nosuch.module:x"}
        case "policy option":
            chat["autoscaling_config"]["policy"] = {"policy_functon": "nosuch.module:x"}
        case "policy argument":
            name = "deployments.autoscaling:RestWhenIdle"
            policy = {"policy_function": name, "policy_kwargs": {}}
            chat["autoscaling_config"]["policy"] = policy
        case "router":
            chat["request_router_config"] = {"request_router_class": "nosuch:Router"}
        case "cores":
            chat["ray_actor_options"] = {"num_cpus": 500}
        case "gpus":
            chat["ray_actor_options"] = {"num_gpus": 1.5}
        case "several gpus":
            chat["ray_actor_options"] = {"num_gpus": 2}
        case "application option":
            models["routeprefix"] = "/"
        case "args key":
            models["args"]["ttts"] = []
        case "args name":
            models["args"]["chat"] = ["Chatt"]
        case "entry name":
            chat["name"] = "Chatt"
        case "twice":
            models["deployments"].append(copy.deepcopy(chat))
        case "import path":
            models["import_path"] = "serve_confg.yaml"
        case "gateway removed":
            config["applications"].remove(application(config, "gateway"))
        case "models renamed":
            models["name"] = "model"
        case "user_config key":
            chat["user_config"] = {"modle": ECHO}
        case "user_config missing":
            del chat["user_config"]
        case "user_config of another":
            application(config, "worker")["deployments"][0]["user_config"] = {"a": 1}
        case "unknown model":
            chat["user_config"] = {"model": "llm/none"}
        case "kind":
            chat["user_config"] = {"model": TONE}
        case "weights":
            chat["user_config"] = {"model": "llm/smollm2"}
        case "one model twice":
            models["args"]["chat"].append("Other")
            models["deployments"].append({**copy.deepcopy(chat), "name": "Other"})


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("option", "unknown option: applications.models.deployments.Chat.max_ongoing_reqests"),
        ("option and model", ".Chat.max_ongoing_reqests\nChat: llm/none: no configuration 'llm/n"),
        (
            "scaling",
            "unknown option: applications.models.deployments.Chat.autoscaling_config.min_replica",
        ),
        ("resources", "models.deployments.Chat.ray_actor_options.num_cpu"),
        ("top", "unknown option: loging_config"),
        ("value", f"{CHAT}.max_ongoing_requests: Input should be greater"),
        ("delay", f"{CHAT}.autoscaling_config.upscale_delay_s: Input should be a valid number"),
        ("replicas", f"{CHAT}.autoscaling_config: max_replicas (2) must be greater"),
        ("count", f"{CHAT}.num_replicas is 'two', but must be a number or auto"),
        ("policy", f"{CHAT}.autoscaling_config: No module named 'nosuch'"),
        ("policy option", f"unknown option: {CHAT}.autoscaling_config.policy.policy_functon"),
        (
            "policy argument",
            f"{CHAT}.autoscaling_config: missing a required argument: 'after_use_s'",
        ),
        ("router", f"{CHAT}: No module named 'nosuch'"),
        (
            "cores",
            f"{CHAT}.ray_actor_options: a replica needs 500 CPU, and no machine has that; at most"
            " 2 CPU",
        ),
        ("gpus", f"{CHAT}.ray_actor_options.num_gpus is 1.5, but a number above 1 must be whole"),
        ("several gpus", f"{CHAT}.ray_actor_options: a replica needs 2 GPU, and no machine has"),
        ("application option", "unknown option: applications.models.routeprefix"),
        ("args key", "application 'models': args: ttts: Extra inputs are not permitted"),
        (
            "args name",
            "application 'models': 'Chat' is not among the deployments of args: ModelIndex",
        ),
        ("entry name", "application 'models': 'Chat' of args has no entry"),
        ("twice", "application 'models': 'Chat' is listed 2 times"),
        ("one model twice", "Other and Chat have the same model, "),
        ("import path", "application 'models': import_path 'serve_confg.yaml' names no module"),
        ("gateway removed", "no application has the gateway"),
        ("models renamed", "'gateway': args.models_app is 'models', which has no models"),
        ("user_config key", "Chat: user_config: model: Field required; modle: Extra inputs"),
        ("user_config missing", "Chat: user_config: model: Field required"),
        ("user_config of another", "application 'worker': Worker takes no user_config"),
        ("unknown model", "Chat: llm/none: no configuration 'llm/none'; in llm/ there are ['qwen2"),
        ("kind", f"Chat: {TONE}: "),
        (
            "weights",
            "Chat: llm/smollm2: 'model.gguf' of 'smollm2-135m-q4' is not in the cache; run",
        ),
    ],
)
def test_a_mistake_is_named_and_nothing_is_deployed(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
    case: str,
    message: str,
) -> None:
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path / "no weights"))
    config = config_without_weights()
    misspell(config, case)
    assert message in refused(capsys, write(tmp_path, config))
    assert len(cluster.deployed) == 1


def test_a_model_that_does_not_fit_into_memory_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    config = config_without_weights()
    chat = entry(config, "Chat")
    chat["user_config"] = {"model": ECHO}
    chat["ray_actor_options"] = {"memory": 3 << 30}  # of Chat only: YAML shares it
    monkeypatch.setattr(command, "free_bytes", lambda: 1 << 30)
    before = cluster.deployed[0]
    entry(before, "Chat")["user_config"] = {"model": "llm/smollm2"}
    message = refused(capsys, write(tmp_path, config))
    assert message == (
        "the weights of Chat need 3.0 GiB of memory beside what runs, and 1.0 GiB are free"
    )
    assert len(cluster.deployed) == 1


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {"min_replicas": 2, "max_replicas": 2},
        {"min_replicas": 0, "initial_replicas": 2, "max_replicas": 2},
    ],
)
def test_restarts_and_replicas_beyond_the_memory_are_refused(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
    scaling: dict[str, int] | None,
) -> None:
    config = config_without_weights()
    entry(config, "Chat")["ray_actor_options"] = {"memory": 3 << 30}
    cluster.deployed = [json.loads(json.dumps(config))]
    if scaling is None:
        application(config, "models")["args"]["build"] = "2"
    else:
        entry(config, "Chat")["autoscaling_config"] = scaling
    monkeypatch.setattr(command, "free_bytes", lambda: 1 << 30)
    assert " need 3.0 GiB of memory " in refused(capsys, write(tmp_path, config))
    assert len(cluster.deployed) == 1


def test_the_changes_are_shown_and_deployed(
    cluster: Cluster, tmp_path: Path, capsys: Printed
) -> None:
    config = config_without_weights()
    entry(config, "TTSFast")["user_config"] = {"model": TONE_LOW}
    application(config, "models")["args"]["build"] = "2"
    config["applications"].remove(application(config, "worker"))
    file = write(tmp_path, config)
    changes = [
        "worker: removed",
        "models.args.build: None -> '2'",
        f"models.deployments.TTSFast.user_config.model: {TONE!r} -> {TONE_LOW!r}",
        "models: all its deployments restart",
    ]
    main(["deploy", file, "--check"])
    assert capsys.readouterr().out.splitlines() == [*changes, f"{file} can be deployed"]
    assert len(cluster.deployed) == 1
    main(["deploy", file])
    assert capsys.readouterr().out.splitlines() == [*changes, f"{file} is deployed"]
    assert cluster.deployed[1:] == [config]
    main(["deploy", file])
    assert capsys.readouterr().out.splitlines() == ["nothing changes", f"{file} is deployed"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (SWAPPED, f"TTSFast keeps its previous model: {SWAPPED['TTSFast']}"),
        ({"Chat": REFUSED}, f"Chat: {REFUSED}"),
        (
            None,
            "a deployment keeps its previous model: GET /models has the reason; OPERATOR_TOKEN or"
            " METRICS_TOKEN shows it here",
        ),
    ],
)
def test_a_replica_without_its_model_ends_the_command_with_the_reason(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
    models: dict[str, str] | None,
    message: str,
) -> None:
    monkeypatch.setenv("METRICS_TOKEN", token := "t" * 32)
    cluster.ready = {"status": "degraded", "degraded": ["models"], "models": models}
    config = config_without_weights()
    entry(config, "TTSFast")["user_config"] = {"model": TONE_LOW}
    assert refused(capsys, write(tmp_path, config)) == message
    assert cluster.headers.count(f"Bearer {token}") == 2  # behind a proxy, only it gets reasons


def test_a_model_that_was_refused_is_tried_again_by_the_same_deployment(
    cluster: Cluster, tmp_path: Path, capsys: Printed
) -> None:
    cluster.ready = {"status": "degraded", "degraded": ["models"], "models": SWAPPED}
    file = write(tmp_path, config := config_without_weights())
    for attempt in (1, 2):
        assert refused(capsys, file).startswith("TTSFast keeps its previous model: ")
        assert (
            f"TTSFast.user_config.attempt: {attempt - 1 or None} -> {attempt}"
            in capsys.readouterr().out
        )
        entry(config, "TTSFast")["user_config"]["attempt"] = attempt
        assert cluster.deployed[-1] == config
    cluster.ready_before = [cluster.ready]
    cluster.ready = {"status": "ok", "degraded": []}  # its cause was removed
    for _ in range(2):
        main(["deploy", file])
    assert capsys.readouterr().out.endswith(f"nothing changes\n{file} is deployed\n")


def test_a_model_that_never_started_is_tried_again(
    cluster: Cluster, tmp_path: Path, capsys: Printed
) -> None:
    cluster.status = "DEPLOY_FAILED"
    cluster.deployments = {
        "Chat": {"status": "DEPLOY_FAILED", "message": "ModelNotLoaded: no key"},
        "STT": {"status": "HEALTHY", "message": ""},
    }
    file = write(tmp_path, config := config_without_weights())
    assert "models/Chat: no key" in refused(capsys, file).splitlines()
    entry(config, "Chat")["user_config"]["attempt"] = 1
    assert cluster.deployed[-1] == config


def test_an_edited_model_is_loaded_again(cluster: Cluster, tmp_path: Path, capsys: Printed) -> None:
    base, own = tmp_path / "base.yaml", tmp_path / "own.yaml"
    base.write_text(Path(TONE_LOW).read_text())
    own.write_text(f"like: {base}")
    config = config_without_weights()
    entry(config, "TTSFast")["user_config"] = {"model": str(own)}
    file = write(tmp_path, config)
    for path in (None, base, own):
        if path is not None:
            cluster.deployed_at -= 1  # a file has the time of the last tick of the kernel
            path.rename(path.with_suffix(".bak")).rename(path)  # its content may be of any age
        main(["deploy", file])
        main(["deploy", file])
        assert capsys.readouterr().out.endswith(f"nothing changes\n{file} is deployed\n")
    entry(config, "TTSFast")["user_config"]["attempt"] = 2
    assert cluster.deployed[-1] == config


def test_a_key_that_is_not_set_is_named_before_the_deployment(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    own = tmp_path / "far.yaml"
    own.write_text("like: llm/upstream\nkey_env: FAR_API_KEY")
    config = config_without_weights()
    entry(config, "Chat")["user_config"] = {"model": str(own)}
    file = write(tmp_path, config)
    warning = f"Chat: {own} needs its key in the variable FAR_API_KEY, which is not set here"
    main(["deploy", "--check", file])
    assert warning in capsys.readouterr().out.splitlines()
    monkeypatch.setenv("FAR_API_KEY", "secret")
    main(["deploy", "--check", file])
    assert warning not in capsys.readouterr().out


def test_reports_of_replaced_replicas_are_ignored(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(command, "OUTLIVES_S", PATIENCE_S)
    old = {"status": "degraded", "degraded": ["models"], "models": SWAPPED}
    config = config_without_weights()
    application(config, "models")["args"]["build"] = "2"
    entry(config, "TTSFast")["user_config"] = {"model": TONE_LOW}
    cluster.ready_before = [old, old]
    file = write(tmp_path, config)
    main(["deploy", file])
    assert capsys.readouterr().out.endswith(f"{file} is deployed\n")
    monkeypatch.setattr(command, "OUTLIVES_S", 0.1)
    cluster.ready = old  # by its own replicas, too
    application(config, "models")["args"]["build"] = "3"
    assert refused(capsys, write(tmp_path, config)).endswith(SWAPPED["TTSFast"])


def test_a_gateway_that_is_not_ready_ends_the_command_with_its_reason(
    cluster: Cluster, tmp_path: Path, capsys: Printed
) -> None:
    cluster.ready = {"success": False, "error": "unavailable", "message": "not ready: STT"}
    cluster.ready_statuses = [503]
    message = refused(capsys, write(tmp_path, config_without_weights()))
    assert message == "the gateway answers 503: not ready: STT"


def test_a_gateway_that_does_not_answer_ends_the_command(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("PORT", "1")
    message = refused(capsys, write(tmp_path, config_without_weights()))
    assert message == "the gateway does not answer at http://127.0.0.1:1/readyz"


def test_a_swap_that_failed_is_seen_once_the_gateway_is_ready_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(command, "ANSWER_S", PATIENCE_S)  # for three answers
    cluster.ready = {"status": "degraded", "degraded": ["models"], "models": SWAPPED}
    cluster.ready_statuses = [503, 503, 200]
    message = refused(capsys, write(tmp_path, config_without_weights()))
    assert message.startswith("TTSFast keeps its previous model: ")


def test_a_replica_that_cannot_start_ends_the_command_with_its_last_sentence(
    cluster: Cluster, tmp_path: Path, capsys: Printed
) -> None:
    cluster.status = "DEPLOY_FAILED"
    why = "The deployment failed to start 3 times in a row. Error:\nray::ServeReplica:models:Chat\n"
    trace = '  File "/model.py", line 1, in reconfigure\nmodels.errors.ModelNotLoaded: '
    cluster.deployments = {
        "Chat": {"status": "DEPLOY_FAILED", "message": f"{why}{trace}llm/x cannot be loaded: y"},
        "STT": {"status": "HEALTHY", "message": ""},
    }
    reasons = refused(capsys, write(tmp_path, config_without_weights())).splitlines()
    assert "models/Chat: llm/x cannot be loaded: y" in reasons and "STT" not in str(reasons)


def test_a_service_that_does_not_run_is_a_sentence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("RAY_DASHBOARD_PORT", "1")
    message = refused(capsys, write(tmp_path, config_without_weights()))
    assert message.startswith("Ray's dashboard does not answer at http://127.0.0.1:1 (")
    assert message.endswith("with the same RAY_DASHBOARD_PORT and CLUSTER_ADDRESS?")


def test_the_dashboard_of_another_service_is_named_with_the_remedy(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    wrong = {"error": "Forbidden: Invalid authentication token"}
    monkeypatch.setattr(_Handler, "do_GET", lambda handler: handler._answer(wrong, 403))
    message = refused(capsys, write(tmp_path, config_without_weights()))
    assert f"http://127.0.0.1:{cluster.server_port} refuses the token" in message
    assert "set RAY_DASHBOARD_PORT to the port of this one" in message


def test_on_exposed_clusters_the_command_sends_the_cluster_token(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST", "0.0.0.0")
    main(["deploy", write(tmp_path, config_without_weights())])
    file = tmp_path / "data" / "ray_token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"Bearer {file.read_text()}" in cluster.headers and len(file.read_text()) == 64


def test_a_token_of_the_cluster_that_cannot_be_read_is_a_sentence(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    message = refused(capsys, write(tmp_path, config_without_weights()))
    assert message.startswith("Ray's token cannot be read: [Errno 2]")


@pytest.mark.parametrize("restarts", [False, True])
def test_replicas_without_room_delay_only_a_restart(
    monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    message = "1 replicas that have taken more than 30s to be scheduled."
    waiting = {
        "status": "UPDATING",
        "message": message,
        "replicas": [{"state": "RUNNING"}, {"state": "STARTING"}],
    }
    loading = {**waiting, "message": ""}
    states = [
        {"models": {"status": "DEPLOYING", "deployments": {"STT": waiting, "Chat": loading}}},
        {"models": {"status": "DEPLOYING", "deployments": {"STT": waiting}}},
    ]
    monkeypatch.setattr(
        "deployments.cluster.serve_api.applications",
        lambda _: states.pop(0) if states[1:] else states[0],
    )
    monkeypatch.setattr(command, "POLL_S", 0.0)
    if not restarts:
        command.wait("", {"models"}, restarts=False)
        assert len(states) == 1  # after Chat was ready
        return
    del states[0]
    monkeypatch.setattr(command, "TIMEOUT_S", 0.05)
    with pytest.raises(ValueError, match=f"^not running after 0 s: models/STT: {message}$"):
        command.wait("", {"models"}, restarts=True)
