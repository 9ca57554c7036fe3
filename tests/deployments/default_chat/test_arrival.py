"""The chat model that comes while another answers: breaks, damage, full disks, the swap."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from configs.settings import Settings, load_settings
from deployments.default_chat import arrival
from deployments.default_chat.arrival import ModelArrival
from deployments.replicas.choice import is_here
from deployments.rollout import deploy
from models.weights.store import WeightStore
from pipelines.ports import Arrival
from tests.deployments.default_chat.mirror import BLOCK, Mirror, ServeApi, serving
from tests.patience import block_until
from tests.servers import free_port

DATA = os.urandom(20 * BLOCK)


class Scene:
    """A service whose chat model has 1.3 MB of weights, which a mirror has."""

    def __init__(self, folder: Path, mirror: Mirror, serve: ServeApi, settings: Settings) -> None:
        self.folder, self.mirror, self.serve, self.settings = folder, mirror, serve, settings
        self.model = str(folder / "tiny.yaml")
        self.lines: list[str] = []
        self.reports: list[Arrival | None] = []

    def start(self) -> ModelArrival:
        return ModelArrival(self.settings, self.serve.url, self.lines.append)

    def blobs(self) -> list[str]:
        return [path.name for path in (self.folder / "weights" / "blobs").glob("*")]

    def partial(self) -> int:
        """The bytes of the download that has begun."""
        path = self.folder / "weights" / "downloads" / f"file-{self.mirror.sha256}"
        return path.stat().st_size if path.exists() else 0


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    model = str(tmp_path / "tiny.yaml")
    application = {
        "name": "models",
        "import_path": "deployments.app:build_models",
        "args": {"chat": ["Chat"]},
        "deployments": [
            {"name": "ModelIndex"},
            {"name": "Chat", "user_config": {"model": "llm/smollm2", "wanted": model}},
        ],
    }
    mirror, serve = Mirror(DATA), ServeApi(application)
    file = {"size_bytes": len(DATA), "sha256": mirror.sha256}
    nowhere = f"http://127.0.0.1:{free_port()}/tiny"
    artefact = {
        "description": "d",
        "licence": "MIT",
        "homepage": "https://example.org",
        "required": False,
        "files": {"model.gguf": file},
        "sources": [{"kind": "url", "files": {"*": nowhere}}],
    }
    (tmp_path / "catalogue.yaml").write_text(yaml.safe_dump({"artefacts": {"tiny": artefact}}))
    config = {"engine": "llama_cpp", "id": "svc/tiny", "owned_by": "o", "created": 1}
    config |= {"languages": ["en"], "weights": "tiny"}
    Path(model).write_text(yaml.safe_dump(config))
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("ANTIPHON_CATALOGUE", str(tmp_path / "catalogue.yaml"))
    monkeypatch.setenv("ANTIPHON_MIRROR", mirror.url)
    monkeypatch.setenv("CHAT_MODEL", "auto")
    monkeypatch.setenv("HOST", "127.0.0.1")
    monkeypatch.setenv("PORT", str(serve.server_port))
    monkeypatch.setattr(deploy, "REPORTED_S", 0.0)
    monkeypatch.setattr(arrival, "LOOK_S", 0.1)
    monkeypatch.setattr(arrival, "PAUSE_S", 0.2)
    monkeypatch.setattr(arrival, "LONGEST_PAUSE_S", 0.2)
    settings = replace(load_settings(), free_space_mb=0)
    made = Scene(tmp_path, mirror, serve, settings)
    report = lambda self, waiting, one: made.reports.append(one)  # noqa: E731
    monkeypatch.setattr(ModelArrival, "_expect", report)
    with serving(mirror), serving(serve):
        yield made


def test_a_model_comes_with_its_progress_and_is_swapped_in(scene: Scene) -> None:
    assert not is_here(scene.model)
    follower = scene.start()
    block_until(lambda: scene.serve.deployed)
    block_until(lambda: scene.reports[-1:] == [None])
    follower.close()
    assert scene.serve.deployed == [{"model": scene.model, "wanted": scene.model}]
    reports = [one for one in scene.reports if one is not None]
    assert {(one.model, one.size_bytes) for one in reports} == {("svc/tiny", len(DATA))}
    got = [one.got_bytes for one in reports]
    assert got[0] == 0 and got[-1] == len(DATA) and got == sorted(got) and len(got) <= 101
    assert "Chat: 100 % of 1 MiB of svc/tiny are downloaded" in scene.lines
    assert len(scene.lines) <= 12 and scene.lines[-1] == "Chat: svc/tiny answers now"
    assert is_here(scene.model)


def test_what_is_deployed_wins_over_the_setting_of_the_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_MODEL", "llm/smollm2")  # of `make run`, or of the image
    follower = scene.start()
    block_until(lambda: scene.serve.deployed)
    follower.close()
    assert scene.serve.deployed == [{"model": scene.model, "wanted": scene.model}]


def test_a_download_that_is_cut_goes_on_where_it_was(scene: Scene) -> None:
    scene.mirror.cut_at = 7 * BLOCK + 5
    follower = scene.start()
    block_until(lambda: any("is delayed" in line for line in scene.lines))
    assert scene.serve.deployed == [] and scene.blobs() == []
    assert [one.problem for one in scene.reports if one is not None and one.problem]
    scene.mirror.cut_at = None
    block_until(lambda: scene.serve.deployed)
    follower.close()
    assert scene.mirror.begins[0] == 0 and set(scene.mirror.begins[1:]) == {7 * BLOCK + 5}


def test_altered_bytes_are_refused_and_nothing_half_written_stays(scene: Scene) -> None:
    scene.mirror.altered = True
    follower = scene.start()
    block_until(lambda: any("has SHA-256" in line for line in scene.lines))
    follower.close()
    assert scene.serve.deployed == [] and scene.blobs() == [] and scene.partial() == 0


def test_a_download_leaves_the_free_space_of_the_service(scene: Scene) -> None:
    scene.settings = replace(scene.settings, free_space_mb=10**9)
    follower = scene.start()
    block_until(lambda: len([one for one in scene.reports if one and one.problem]) > 1)
    follower.close()
    [line] = [one for one in scene.lines if "is delayed" in one]
    assert "1 MiB are to be fetched, 953,674,316 MiB must stay free" in line
    assert scene.mirror.begins == [] and scene.serve.deployed == []


def test_without_a_network_one_line_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_MIRROR", f"http://127.0.0.1:{free_port()}")
    follower = scene.start()
    block_until(lambda: len([one for one in scene.reports if one and one.problem]) > 3)
    follower.close()
    [line] = [one for one in scene.lines if "is delayed" in one]
    assert line.startswith(f"Chat: {scene.model} is delayed: no source")


def test_a_configuration_that_cannot_be_read_is_read_again(scene: Scene) -> None:
    whole = Path(scene.model).read_text()
    Path(scene.model).write_text("engine: [")
    follower = scene.start()
    block_until(lambda: any("is delayed" in line for line in scene.lines))
    Path(scene.model).write_text(whole)
    block_until(lambda: scene.serve.deployed)
    follower.close()


def test_a_service_that_stops_keeps_what_it_has_fetched(scene: Scene) -> None:
    scene.mirror.block_s = 0.1
    follower = scene.start()
    block_until(lambda: scene.partial() > 2 * BLOCK)
    follower.close()
    kept = scene.partial()
    assert kept < len(DATA) and scene.serve.deployed == []
    scene.mirror.block_s = 0.0
    follower = scene.start()
    block_until(lambda: scene.serve.deployed)
    follower.close()
    assert scene.mirror.begins[-1] >= kept > 0


def test_weights_whose_bytes_have_changed_are_fetched_again(scene: Scene) -> None:
    follower = scene.start()
    block_until(lambda: scene.serve.deployed)
    follower.close()
    store = WeightStore(scene.folder / "weights")
    blob = store.blob_path(store.artefact("tiny").files["model.gguf"])
    blob.write_bytes(DATA[::-1])
    assert not is_here(scene.model)
    [application] = scene.serve.applications.values()
    application["deployments"][1]["user_config"]["model"] = "auto"
    follower = scene.start()
    block_until(lambda: len(scene.serve.deployed) == 2)
    follower.close()
    assert blob.read_bytes() == DATA


def test_a_model_that_the_operator_names_during_a_download_stays(scene: Scene) -> None:
    scene.mirror.block_s = 0.05
    follower = scene.start()
    block_until(lambda: scene.partial() > BLOCK)
    [application] = scene.serve.applications.values()
    application["deployments"][1]["user_config"] = {"model": "llm/smollm2"}
    block_until(lambda: scene.reports[-1:] == [None])
    follower.close()
    assert scene.serve.deployed == [] and is_here(scene.model)


def test_a_model_that_the_operator_names_is_left_alone(scene: Scene) -> None:
    [application] = scene.serve.applications.values()
    application["deployments"][1]["user_config"] = {"model": "llm/smollm2"}
    follower = scene.start()
    time.sleep(0.5)
    follower.close()
    assert (scene.mirror.begins, scene.serve.deployed, scene.lines) == ([], [], [])
