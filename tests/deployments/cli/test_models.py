"""`antiphon models` on the weights of a machine: listed, checked, removed and mirrored."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from antiphon.cli.main import antiphon
from configs.load import CONFIGS_DIR
from configs.settings import load_settings
from deployments.cli.main import add_commands
from models.weights.cleaning import leftovers
from models.weights.store import WeightStore, load_own_catalogue, own_model
from tests.deployments.rollout.test_deploy import Cluster
from tests.migrated import data_of_a_service
from tests.models.weights.local_hub import LocalHub, serving, sha256, use_hub

GGUF = b"GGUF" + bytes(3 << 20)
Antiphon = Callable[..., Result]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, which is empty; the data folder lies beside it."""
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(root: Path) -> Antiphon:
    def run(*arguments: str, status: int = 0) -> Result:
        done = CliRunner().invoke(antiphon, arguments)
        assert done.exit_code == status, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    add_commands(antiphon)
    return run


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with serving() as found:
        found.files, found.lfs = {"tiny.gguf": GGUF}, {"tiny.gguf"}
        use_hub(found, monkeypatch)
        yield found


@pytest.fixture
def pulled(hub: LocalHub, run: Antiphon) -> Result:
    """The answer to the pull of a model `tiny`."""
    return run("models", "pull", "hf:a/b")


def rows(run: Antiphon, *arguments: str) -> dict[str, dict[str, Any]]:
    listed = json.loads(run("--json", "models", "list", "--local", *arguments).stdout)
    return {one["id"]: one for one in listed["data"]}


def serves(folder: Path, model: str) -> Path:
    """A configuration like that of the tree, whose chat model is another."""
    config = yaml.safe_load((CONFIGS_DIR / "serve_config.yaml").read_text())
    for application in config["applications"]:
        for entry in application["deployments"]:
            if entry["name"] == "Chat":
                entry["user_config"] = {"model": model}
    file = folder / "own_config.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def test_a_pull_shows_the_licence_and_what_to_do_next(pulled: Result) -> None:
    assert "3.0 MiB, licence apache-2.0" in pulled.output
    assert f"give Chat in serve_config.yaml\n    user_config: {{model: {own_model('tiny')}}}" in (
        pulled.output
    )
    assert "antiphon deploy --check serve_config.yaml" in pulled.output
    load_settings()  # which refuses a data folder that is open to others


def test_a_pull_that_fails_ends_with_a_sentence_and_status_1(hub: LocalHub, run: Antiphon) -> None:
    hub.card = {}
    assert "Error: b states no licence" in run("models", "pull", "hf:a/b", status=1).output
    assert "is neither in the catalogue" in run("models", "pull", "nothing", status=1).output
    hub.files.clear()
    run("models", "pull", "hf:a/b", "--licence", "MIT", status=1)
    both = ("models", "pull", "hf:a/b", "hf:a/c", "--name", "x")
    assert "are for one model" in run(*both, status=2).output


def test_the_list_has_kind_licence_size_state_need_and_use(
    pulled: Result, run: Antiphon, tmp_path: Path
) -> None:
    tiny = rows(run)["tiny"]
    assert tiny == {
        "id": "tiny",
        "kind": "chat",
        "licence": "apache-2.0",
        "disk_bytes": len(GGUF),
        "fetched": True,
        "verified": True,
        "need": "own",
        "used_by": [],
        "description": f"a/b at {'c' * 40}",
    }
    used = rows(run, "--config", str(serves(tmp_path, str(own_model("tiny")))))
    assert used["tiny"]["used_by"] == ["Chat"] and used["smollm2-135m-q4"]["used_by"] == []
    ours = used["kokoro-voices"]
    assert (ours["kind"], ours["fetched"], ours["need"]) == ("tts", False, "required")
    assert ours["used_by"] == ["TTSQuality"]
    assert used["smollm3-3b"]["need"] == "gpu" and used["whisper-tiny-en"]["need"] == "optional"
    shown = run("models", "list", "--local").stdout
    assert "tiny" in shown and "3 MiB    verified  own" in shown


def test_a_check_reads_each_model_once_and_names_wrong_bytes(
    root: Path, pulled: Result, run: Antiphon
) -> None:
    assert run("models", "check", "tiny", "tiny").output.count("every byte as expected") == 1
    assert run("models", "check").output.count("\n") == 1  # of all that are there
    (root / "blobs" / sha256(GGUF)).write_bytes(b"GGUF" + bytes(len(GGUF) - 5) + b"x")
    assert rows(run)["tiny"]["verified"] is False
    assert "'model.gguf' of 'tiny' has SHA-256" in run("models", "check", status=1).output
    assert "no artefact 'none'" in run("models", "check", "none", status=1).output
    assert "is not in the cache" in run("models", "check", "piper-joe", status=1).output


def test_a_model_is_removed_unless_a_configuration_uses_it(
    root: Path, pulled: Result, run: Antiphon, tmp_path: Path
) -> None:
    used = ("--config", str(serves(tmp_path, str(own_model("tiny")))), "--yes")
    refused = run("models", "remove", "tiny", *used, status=1)
    assert "'tiny' is needed by Chat; --force deletes it" in refused.output
    assert "`make run`" in run("models", "remove", "piper-joe", "--yes", status=1).output
    asked = run("models", "remove", "tiny", status=1).output  # not confirmed
    assert "Delete tiny (3.0 MiB) from this machine?" in asked and "Aborted!" in asked
    unknown = run("models", "remove", "tiny", "nothing", status=1).output
    assert "no artefact 'nothing'" in unknown and "Delete" not in unknown
    WeightStore(root).verify("tiny")
    assert "3.0 MiB were freed" in run("models", "remove", "tiny", *used, "--force").output
    assert not [path for path in root.glob("*/*")] and not own_model("tiny").exists()
    assert load_own_catalogue().artefacts == {}
    assert "no artefact 'tiny'" in run("models", "remove", "tiny", "--yes", status=1).output
    run("models", "remove", "--yes", status=2)


def test_a_model_that_the_running_service_uses_is_not_removed(
    pulled: Result, run: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_of_a_service(tmp_path / "data")
    monkeypatch.setenv("PYTHONPATH", "")
    config = serves(tmp_path, str(own_model("tiny")))
    with running(yaml.safe_load(config.read_text())) as dashboard:
        assert rows(run, "--dashboard", dashboard)["tiny"]["used_by"] == ["Chat"]
        refused = run("models", "remove", "tiny", "--dashboard", dashboard, "--yes", status=1)
    assert "'tiny' is needed by Chat" in refused.output
    assert "only" in run("models", "remove", "tiny", "--dashboard", dashboard, "--yes").stderr


@contextmanager
def running(config: dict[str, Any]) -> Iterator[str]:
    """The address of a dashboard whose service has that configuration."""
    cluster = Cluster()
    cluster.deployed.append(config)
    threading.Thread(target=cluster.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{cluster.server_port}"
    cluster.shutdown()
    cluster.server_close()


def test_bytes_that_another_model_needs_stay(root: Path, pulled: Result, run: Antiphon) -> None:
    run("models", "pull", "hf:a/b", "--name", "same")
    assert "0.0 MiB were freed" in run("models", "remove", "tiny", "--yes").output
    WeightStore(root).verify("same")


def test_what_no_catalogue_names_and_broken_downloads_are_deleted(
    root: Path, pulled: Result, run: Antiphon
) -> None:
    for name in ("blobs/unknown", "downloads/file-part", "derived/old@1/a.onnx", "checked/unknown"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes(1 << 20))
    assert "4.0 MiB were freed" in run("models", "remove", "--unused", "--yes").output
    assert not leftovers(WeightStore(root))
    WeightStore(root).verify("tiny")
    assert "0.0 MiB were freed" in run("models", "remove", "--unused", "--yes").output


def test_a_mirror_serves_a_machine_that_reaches_nothing_else(
    root: Path, pulled: Result, run: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    assert "3.0 MiB were copied" in run("models", "mirror", str(mirror)).output
    assert (mirror / sha256(GGUF)).read_bytes() == GGUF
    assert "0.0 MiB were copied" in run("models", "mirror", str(mirror), "tiny").output
    assert "is not in the cache" in run("models", "mirror", str(mirror), "dnsmos", status=1).output
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path / "offline"))
    monkeypatch.setenv("ANTIPHON_MIRROR", str(mirror))
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", "http://[")
    stored = run("models", "pull", "tiny").stdout
    assert stored.splitlines() == [
        "'tiny' is stored; its licence is apache-2.0",
        f"configurations that use it: {own_model('tiny')}",
    ]
    assert run("models", "pull", "tiny").stdout == stored.replace(
        "is stored", "was present already"
    )
    WeightStore(tmp_path / "offline").verify("tiny")
