"""Weights of the operator's choice from a hub, an address or this machine; hostile ones."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.environment import SettingsError
from configs.settings import PROJECT_DIR, own_catalogue
from models.errors import EngineError
from models.registry import CHAT, STT, TTS, artefacts_of, load_model
from models.tts.base import SynthesisRequest
from models.weights.cleaning import leftovers
from models.weights.pull import PullOptions, pull
from models.weights.store import WeightStore, load_catalogue, load_own_catalogue, own_model
from tests.models.weights.local_hub import COMMIT, LocalHub, serving, sha256, use_hub

GGUF = b"GGUF" + bytes(range(256)) * 2000
PIPER = {
    "audio": {"sample_rate": 22050},
    "dataset": "eva_k",
    "language": {"code": "de_DE", "family": "de"},
    "num_speakers": 1,
}
WHISPER = {
    "model.bin": b"\x06\0\0\0CTranslate2",
    "config.json": b'{"suppress_ids": []}',
    "tokenizer.json": b"{}",
    "vocabulary.json": b"[]",
}
TRANSFORMERS = {
    "config.json": b"{}",
    "model.safetensors": b"\x80\x02\0\0\0\0\0\0{" + bytes(700),  # a length of 640, no pickle
    "pytorch_model.bin": b"PK\x03\x04",
    "modeling.py": b"import os",
    "logo.png": b"PNG",
}
MIT = PullOptions(licence="MIT")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a service with its own data folder."""
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "data"))
    return tmp_path / "cache"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with serving() as found:
        found.files, found.lfs = (
            {"one-Q4_K_M.gguf": GGUF, "README.md": b"# One"},
            {"one-Q4_K_M.gguf"},
        )
        use_hub(found, monkeypatch)
        yield found


def pulled(root: Path, reference: str, options: PullOptions = MIT) -> tuple[str, list[str]]:
    """The name, and what was said."""
    said: list[str] = []
    name, _ = pull(root, reference, options, said.append)
    WeightStore(root).verify(name)
    return name, said


def refused(root: Path, reference: str, options: PullOptions = MIT) -> str:
    """The message; nothing was kept but parts of downloads."""
    with pytest.raises((EngineError, OSError, ValueError)) as caught:
        pull(root, reference, options, lambda line: None)
    assert not own_catalogue().exists()
    assert not list(own_catalogue().parent.glob("models/*"))
    kept = {path for path in leftovers(WeightStore(root)) if path.parent.name != "downloads"}
    assert not kept and not list(root.glob("blobs/*"))
    return str(caught.value)


def test_a_pulled_gguf_is_pinned_and_gets_a_configuration(root: Path, hub: LocalHub) -> None:
    hub.card = {"license": "apache-2.0", "language": ["en", "de", "zho"]}
    name, said = pulled(root, "hf:someone/One-GGUF@main", PullOptions())
    assert name == "one-q4-k-m"
    assert said == [f"someone/One-GGUF at {COMMIT}: 1 files, 0.5 MiB, licence apache-2.0"]
    entry = load_own_catalogue().artefacts[name]
    [source] = entry.sources
    assert (entry.licence, entry.required) == ("apache-2.0", False)
    assert source.kind == "hub" and (source.repo, source.revision) == ("someone/One-GGUF", COMMIT)
    assert entry.files["model.gguf"].sha256 == sha256(GGUF)
    config = CHAT.read(str(own_model(name)))
    assert (config.id, config.owned_by, config.languages) == (
        f"svc/{name}",
        "someone",
        ("en", "de"),
    )
    assert artefacts_of(config) == {name}
    assert (WeightStore(root).folder(name) / "model.gguf").read_bytes() == GGUF
    own_model(name).write_text("# edited")
    hub.asked.clear()
    assert pulled(root, f"hf:someone/One-GGUF@{COMMIT}", PullOptions())[0] == name
    assert own_model(name).read_text() == "# edited"
    assert not [path for path in hub.asked if "resolve" in path]  # nothing is fetched twice


def test_of_several_models_one_has_to_be_chosen(root: Path, hub: LocalHub) -> None:
    hub.files |= {f"two-{size}.gguf": GGUF for size in ("Q8_0", "F16")}
    message = refused(root, "hf:someone/one")
    assert "choose one of 3 models by --include: one-Q4_K_M.gguf, two-F16.gguf" in message
    name, _ = pulled(root, "hf:someone/one", PullOptions(licence="MIT", include=("*Q8_0*",)))
    assert name == "two-q8-0"
    hub.files = {f"big-0000{part}-of-00002.gguf": GGUF for part in (1, 2)}
    part = PullOptions(licence="MIT", include=("*1-of-0*",))
    assert "is one part" in refused_again(root, "hf:someone/one", part)


def refused_again(root: Path, reference: str, options: PullOptions = MIT) -> str:
    """As `refused`, where something was pulled before, which stays as it is."""
    before = own_catalogue().read_bytes(), sorted(root.glob("blobs/*"))
    with pytest.raises((EngineError, OSError, ValueError)) as caught:
        pull(root, reference, options, lambda line: None)
    assert before == (own_catalogue().read_bytes(), sorted(root.glob("blobs/*")))
    return str(caught.value)


def test_a_piper_voice_gets_a_configuration_with_its_language_and_accent(
    root: Path, hub: LocalHub
) -> None:
    place = "de/de_DE/eva_k/x_low/de_DE-eva_k-x_low.onnx"
    hub.files = {place: b"\x08\x08onnx", f"{place}.json": json.dumps(PIPER).encode()}
    hub.card = {"license": "mit", "language": ["ar", "ca", "de"]}
    assert "--gender" in refused(root, "hf:rhasspy/piper-voices")
    name, _ = pulled(root, "hf:rhasspy/piper-voices@v1.0.0", PullOptions(gender="female"))
    files = load_own_catalogue().artefacts[name].files
    assert name == "de-de-eva-k-x-low" and set(files) == {"model.onnx", "model.onnx.json"}
    assert all(file.sha256 for file in files.values())
    [voice] = TTS.read(str(own_model(name))).voices
    assert (voice.name, voice.language, voice.gender) == ("Eva K", "de", "female")
    assert (voice.accent, voice.weights) == ("Neutral", name)


@pytest.mark.parametrize(
    "wrong",
    [
        b"no json",
        b"[]",
        json.dumps(PIPER | {"num_speakers": 904}).encode(),
        json.dumps(PIPER | {"language": {}}).encode(),
        json.dumps(PIPER).encode() + b" " * (1 << 20),
    ],
)
def test_a_voice_that_the_engine_cannot_read_is_refused(
    root: Path, hub: LocalHub, wrong: bytes
) -> None:
    hub.files = {"a.onnx": b"\x08\x08onnx", "a.onnx.json": wrong}
    refused(root, "hf:a/b", PullOptions(licence="MIT", gender="male"))


def test_a_whisper_model_of_ctranslate2_is_taken_from_a_folder(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "faster-whisper-large-v3-turbo"
    (folder / ".git").mkdir(parents=True)
    for name, data in WHISPER.items():
        (folder / name).write_bytes(data)
    (folder / ".git" / "config").write_text("hidden")
    name, _ = pulled(root, str(folder))
    assert set(load_own_catalogue().artefacts[name].files) == set(WHISPER)
    config = STT.read(str(own_model(name)))
    assert (config.artefact, config.translates) == (name, False)
    shutil.rmtree(folder)  # it is not needed any more
    WeightStore(root).verify(name)


def test_of_an_unknown_form_only_files_of_data_are_taken(root: Path, hub: LocalHub) -> None:
    hub.files = TRANSFORMERS
    name, _ = pulled(root, "hf:Some.One/Model-0.5B")
    assert name == "model-0-5b" and not own_model(name).exists()
    files = load_own_catalogue().artefacts[name].files
    assert set(files) == {"config.json", "model.safetensors"}
    assert all(file.sha256 for file in files.values())
    pulled(root, "hf:Some.One/Model-0.5B")
    assert not (root / "downloads").exists()


def test_pickles_and_programs_are_refused_by_name_and_by_content(root: Path, hub: LocalHub) -> None:
    hub.files = TRANSFORMERS
    asked = PullOptions(licence="MIT", include=("*.bin", "*.json"))
    assert "pytorch_model.bin. Pickles and programs" in refused(root, "hf:a/b", asked)
    hub.files = {"a.pt": b"\x80\x02", "config.json": b"{}"}
    assert "no safetensors, GGUF or ONNX: a.pt" in refused(root, "hf:a/b")
    for name, data in {
        "a.gguf": b"PK\x03\x04",
        "a.safetensors": b"\x80\x02}q\0X\x05\0\0\0",
        "a.onnx": b"PK\x03\x04zip",
        "model.bin": b"\x80\x04\x95",
    }.items():
        hub.files = (WHISPER if name == "model.bin" else {}) | {name: data}
        assert "may be a pickle" in refused(root, "hf:a/b")


def test_names_that_lead_out_of_the_folder_are_refused(root: Path, hub: LocalHub) -> None:
    for name in ("../../a.gguf", "/etc/a.gguf", "a/../../b.gguf", "a\x1b[2J.gguf", "a\n.gguf"):
        hub.files = {name: GGUF}
        message = refused(root, "hf:a/b")
        assert "is not inside its folder" in message and message.isprintable()
    for name in (".hidden.safetensors", "a/.b.safetensors/../x.safetensors", "é.safetensors"):
        hub.files = {name: b"\0" * 8 + b"{"}
        assert refused(root, "hf:a/b").isprintable()


def test_links_in_a_folder_are_not_followed(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"\0" * 8 + b"{")
    (folder / "config.json").symlink_to("/etc/passwd")
    assert "links and devices are not followed: config.json" in refused(root, str(folder))
    (folder / "config.json").unlink()
    (folder / "more").symlink_to("/etc")
    assert "not followed: more" in refused(root, str(folder))
    (folder / "more").unlink()
    os.mkfifo(folder / "pipe.json")
    assert "not followed: pipe.json" in refused(root, str(folder))


def test_wrong_sizes_and_digests_are_refused(root: Path, hub: LocalHub) -> None:
    path = "one-Q4_K_M.gguf"
    lfs = {"size": len(GGUF), "sha256": sha256(GGUF), "pointerSize": 134}
    for wrong, message in (
        ({"lfs": lfs | {"sha256": sha256(b"other")}}, "SHA-256"),
        ({"lfs": lfs | {"size": len(GGUF) - 1}}, "longer than it should be"),
        ({"lfs": lfs | {"size": len(GGUF) + 1}}, f"expected {sha256(GGUF)} and {len(GGUF) + 1}"),
        ({"lfs": lfs | {"size": 1 << 60}}, "MiB are free"),
        ({"lfs": lfs | {"size": -1}}, "greater than 0"),
        ({"lfs": lfs | {"sha256": "../../x"}}, "pattern"),
        ({"lfs": None, "blobId": "0" * 40}, "git object"),
        ({"lfs": None, "size": None}, "siblings.0.size"),
        ({"lfs": None, "size": 0}, "greater than 0"),
        ({"lfs": None, "size": 1 << 60}, "MiB are free"),
        ({"lfs": None, "rfilename": 7}, "siblings.0.rfilename"),
        ({"lfs": "x"}, "siblings.0.lfs"),
    ):
        hub.listed = {path: wrong}
        assert message in refused(root, "hf:a/b")
        shutil.rmtree(root / "downloads", ignore_errors=True)
    hub.listed, hub.commit = {}, "main"
    assert "sha: String should match pattern" in refused(root, "hf:a/b")
    for bad in ("hf:../../a/b", "hf:", "hf:a/b/c@main"):
        assert "owner/name" in refused(root, bad)


def test_a_licence_has_to_be_stated_or_accepted(root: Path, hub: LocalHub) -> None:
    for card in ({}, {"license": "other"}, {"license": ["mit"]}, {"license": ""}, None):
        hub.card = card
        assert "states no licence" in refused(root, "hf:a/b", PullOptions())
    hub.card = {"license": "other", "license_name": "own\x1b[31m-terms"}
    name, said = pulled(root, "hf:a/b", PullOptions())
    assert "licence own[31m-terms" in said[0]
    assert load_own_catalogue().artefacts[name].licence == "own[31m-terms"
    hub.card = {}
    name, _ = pulled(root, "hf:a/b", PullOptions(accept_licence=True, name="two"))
    assert load_own_catalogue().artefacts["two"].licence == "unknown"


def test_an_address_needs_the_digest_of_its_file(root: Path, hub: LocalHub) -> None:
    url, digest = f"{hub.url}/one-Q4_K_M.gguf", sha256(GGUF)
    assert "--sha256" in refused(root, url)
    wrong = PullOptions(licence="MIT", sha256=digest[:-1] + "0")
    assert "SHA-256" in refused(root, url, wrong)
    assert "pattern" in refused(root, url, PullOptions(licence="MIT", sha256="short"))
    right = PullOptions(licence="MIT", sha256=digest.upper())
    assert "404" in refused(root, f"{hub.url}/none.gguf", right)
    name, _ = pulled(root, url, right)
    assert load_own_catalogue().artefacts[name].files["model.gguf"].sha256 == digest
    assert CHAT.read(str(own_model(name))).languages == ("en",)


def test_a_name_of_ours_or_of_another_model_is_refused(
    root: Path, hub: LocalHub, tmp_path: Path
) -> None:
    ours = PullOptions(licence="MIT", name="whisper-base")
    assert "an entry of configs/catalogue.yaml" in refused(root, "hf:a/b", ours)
    assert "is neither in the catalogue" in refused(root, "whisper-bose")
    pulled(root, "hf:a/b", PullOptions(licence="MIT", name="mine"))
    (tmp_path / "x.gguf").write_bytes(GGUF)
    other = PullOptions(licence="MIT", name="mine")
    assert "names other weights" in refused_again(root, str(tmp_path / "x.gguf"), other)


def test_a_wrong_catalogue_is_an_error_that_names_it(
    root: Path, hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled(root, "hf:a/b", PullOptions(licence="MIT", name="mine"))
    assert "mine" in load_catalogue().artefacts
    text = own_catalogue().read_text()
    place = tmp_path / "elsewhere.yaml"
    monkeypatch.setenv("ANTIPHON_CATALOGUE", str(place))
    assert "mine" not in load_catalogue().artefacts
    place.write_text(text)
    assert "mine" in load_catalogue().artefacts
    for wrong, message in (
        (text.replace("mine:", "whisper-base:"), "whisper-base, which is in configs"),
        ("artefacts: [", "cannot be read: line "),
        ("artefacts: 7", "cannot be read: artefacts"),
    ):
        place.write_text(wrong)
        with pytest.raises(SettingsError, match=re.escape(f"{place}") + ".*" + message):
            WeightStore(root)
    monkeypatch.setenv("ANTIPHON_CATALOGUE", str(tmp_path / "catalogue.json"))
    with pytest.raises(SettingsError, match="must end in .yaml"):
        WeightStore(root)


def test_a_broken_download_continues_and_leaves_nothing_else(root: Path, hub: LocalHub) -> None:
    hub.break_after = 200_000
    assert "no source gave 'model.gguf'" in refused(root, "hf:a/b")
    [part] = (root / "downloads").iterdir()
    assert part.stat().st_size <= 200_000
    hub.break_after = None
    hub.asked.clear()
    pulled(root, "hf:a/b")
    assert hub.asked[-1] == f"/a/b/resolve/{COMMIT}/one-Q4_K_M.gguf bytes={200_000}-"
    assert not (root / "downloads").exists()


def test_another_pull_keeps_the_parts_of_a_broken_one(
    root: Path, hub: LocalHub, tmp_path: Path
) -> None:
    hub.files["one-Q4_K_M.gguf"] += bytes(9)
    (root / "downloads").mkdir(parents=True)
    part = root / "downloads" / f"file-{sha256(hub.files['one-Q4_K_M.gguf'])}"
    part.write_bytes(GGUF)
    (tmp_path / "x.gguf").write_bytes(GGUF)
    pulled(root, str(tmp_path / "x.gguf"))
    assert part.exists()
    pulled(root, "hf:a/b")
    assert hub.asked[-1].endswith(f"bytes={len(GGUF)}-") and not part.exists()


def test_two_pulls_at_once_are_both_kept_and_fetch_a_file_once(root: Path, hub: LocalHub) -> None:
    hub.files["two.gguf"] = GGUF
    hub.lfs.add("two.gguf")
    several = {"one": ("one*",), "two": ("two*",), "one-again": ("one*",)}
    threads = [
        threading.Thread(
            target=pull,
            args=(root, "hf:a/b", PullOptions(name=name, include=include), lambda line: None),
        )
        for name, include in several.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(load_own_catalogue().artefacts) == set(several)
    for name in several:
        WeightStore(root).verify(name)
    assert len([path for path in hub.asked if "resolve" in path]) == 1  # all have the same bytes


def test_a_killed_pull_leaves_the_catalogue_as_it_was(
    root: Path, hub: LocalHub, tmp_path: Path
) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from models.weights import pull as module\n"
        "module._check_is_data = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "module.pull(Path(sys.argv[1]), 'hf:a/b', module.PullOptions(), print)\n"
    )
    command = [sys.executable, "-c", script, str(root)]
    environment = {**os.environ, "HF_ENDPOINT": hub.url}
    assert subprocess.run(command, cwd=PROJECT_DIR, env=environment).returncode == -9
    assert not own_catalogue().exists()
    hub.asked.clear()
    pulled(root, "hf:a/b")
    assert not [path for path in hub.asked if "resolve" in path]  # its bytes are used


def test_the_origin_has_what_a_mirror_lacks_or_corrupts(
    root: Path, hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    monkeypatch.setenv("ANTIPHON_MIRROR", str(mirror))
    for number, data in enumerate((GGUF, GGUF[::-1], None)):
        (mirror / sha256(GGUF)).unlink(missing_ok=True)
        if data is not None:
            (mirror / sha256(GGUF)).write_bytes(data)
        hub.asked.clear()
        pulled(tmp_path / str(number), "hf:a/b", PullOptions(name=f"one-{number}"))
        assert any("resolve" in path for path in hub.asked) is (data != GGUF)
    monkeypatch.setenv("ANTIPHON_MIRROR", "ftp://example.com/x")
    with pytest.raises(SettingsError, match="ANTIPHON_MIRROR"):
        pull(tmp_path / "cache", "hf:a/b", MIT, lambda line: None)


def test_the_password_of_a_mirror_is_not_shown(
    root: Path, hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_MIRROR", "http://me:hunter2@127.0.0.1:9/weights")
    hub.break_after = 5
    message = refused(root, "hf:a/b")
    assert "127.0.0.1:9" in message and "hunter2" not in message


@pytest.mark.weights
def test_a_real_voice_is_pulled_and_speaks(
    root: Path, tmp_path: Path, weights: WeightStore
) -> None:
    shutil.copytree(weights.folder("piper-joe"), tmp_path / "joe")
    options = PullOptions(licence="CC0-1.0", gender="male", name="joe")
    pulled(root, str(tmp_path / "joe" / "model.onnx"), options)
    engine, info = load_model(TTS, str(own_model("joe")), WeightStore(root))
    assert info.id == "svc/joe"
    assert sum(len(piece.pcm) for piece in engine.synthesize(SynthesisRequest("Hi.", "joe", "en")))


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_chat_model_and_a_real_recogniser_are_pulled_and_load(
    root: Path, tmp_path: Path, weights: WeightStore
) -> None:
    shutil.copytree(weights.folder("whisper-base"), tmp_path / "whisper")
    gguf = weights.folder("smollm2-135m-q4") / "model.gguf"
    pulled(root, str(gguf), PullOptions(licence="Apache-2.0", name="small"))
    pulled(root, str(tmp_path / "whisper"), PullOptions(licence="MIT"))
    for kind, name in ((CHAT, "small"), (STT, "whisper")):
        assert load_model(kind, str(own_model(name)), WeightStore(root))[1].id == f"svc/{name}"
