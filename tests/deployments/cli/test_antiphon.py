"""The command line against a service, in processes of its own; engines without weights."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import wave
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import httpx
import numpy as np
import pytest

from antiphon.cli.main import antiphon
from antiphon.cli.service import config_file, store
from antiphon.cli.sound import PLAYERS, RECORDERS
from antiphon.cli.trial import SENTENCE
from configs import running
from configs.environment import sqlite_url
from configs.settings import PROJECT_DIR
from deployments.cli.administration import operator
from deployments.cli.main import COMMANDS, ImportedCommand, add_commands
from models.audio import float_to_pcm16, resample
from models.errors import EngineLost
from tests.api.local_server import Server, local_settings, serve_local, serve_services
from tests.api.local_services import local_services
from tests.api.native.voices.test_sealed_files import PASSPHRASE, sealed
from tests.api.replaced import with_listening
from tests.deployments.forked import run_forked
from tests.hostile.audio_files import wav
from tests.migrated import migrate
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, transcript

SECONDS = 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_local(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "one.wav"
    file.write_bytes(wav(bytes(2 * 16_000 * SECONDS), rate=16_000))
    return file


class Shell:
    """Runs `antiphon` with a home of its own."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(home), **variables}

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run_forked("deployments.cli.main", arguments, self.environment, given)

    def output(self, *arguments: str, given: bytes = b"") -> str:
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.output("--json", *arguments))


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    return Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=server.key)


def test_a_text_is_spoken_into_a_file_whose_name_gives_the_format(
    shell: Shell, tmp_path: Path
) -> None:
    for name, head in (("a.wav", b"RIFF"), ("a.flac", b"fLaC"), ("a.ogg", b"OggS")):
        shell.output("speak", "Good morning.", "-o", str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(head)
    with wave.open(str(tmp_path / "a.wav")) as spoken:  # the header has the length
        frames = len(spoken.readframes(10**7)) // 2
        assert spoken.getnframes() == frames > 0
    refused = shell.run("speak", "No.", "-o", str(tmp_path / "a.wav"), "--voice", "Missing")
    assert refused.returncode == 1 and (tmp_path / "a.wav").stat().st_size > 44  # as it was
    nowhere = shell.run("speak", "No.", "-o", str(tmp_path / "none" / "a.wav"))
    assert nowhere.returncode == 1 and nowhere.stderr.count(b"\n") == 1
    for name, form in (("mp3.wav", "mp3"), ("plain", "wav")):  # the format decides, not the name
        shell.output("speak", "Good morning.", "-o", str(tmp_path / name), "--format", form)
    with wave.open(str(tmp_path / "plain")) as spoken:
        assert spoken.getnframes() == len(spoken.readframes(10**7)) // 2
    silent = shell.run("speak", "Hello Привет [laughs] there.", "-o", str(tmp_path / "b.mp3"))
    warned = silent.stderr.decode()
    assert silent.returncode == 0 and "Warning: no voice can read Привет" in warned
    assert "Warning: markup not followed: [laughs]" in warned
    piped = shell.run("speak", "-o", "-", "--format", "wav", given=b"From a pipe.")
    assert piped.stdout.startswith(b"RIFF") and piped.returncode == 0
    assert re.fullmatch(rb"Wrote \d\.\d s of speech by .+ to stdout\n", piped.stderr)
    told = shell.run("--json", "speak", "One.", "-o", str(tmp_path / "one.mp3"), "-v", "Bass")
    said = json.loads(told.stderr)
    assert (said["voice"], said["output"]) == ("Bass", str(tmp_path / "one.mp3"))
    assert 0 < said["duration_seconds"] < 2 and told.stdout == b""


@pytest.mark.slow
def test_a_book_becomes_one_file(shell: Shell, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("This is a sentence of a book. " * 300)
    shell.output("speak", "-f", str(book), "-o", str(tmp_path / "book.mp3"))
    short = tmp_path / "short.mp3"
    shell.output("speak", "This is a sentence of a book.", "-o", str(short))
    assert (tmp_path / "book.mp3").stat().st_size > 100 * short.stat().st_size


def install_alone(shell: Shell, folder: Path, name: str, script: str) -> None:
    """Makes `name` the only program of the shell, whatever else the machine has."""
    folder.mkdir()
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    shell.environment["PATH"] = str(folder)


@pytest.mark.parametrize("name", PLAYERS)
def test_speech_is_played_by_the_program_that_is_installed(
    shell: Shell, tmp_path: Path, name: str
) -> None:
    played = tmp_path / "played"
    install_alone(
        shell, tmp_path / "bin", name, f"{shutil.which('cat')} > {shlex.quote(str(played))}"
    )
    shell.output("speak", "Good morning.")
    assert played.stat().st_size > 10_000  # 16-bit samples of 24 kHz


@pytest.mark.parametrize(
    ("name", "message", "status"),
    [
        ("aplay", "aplay: main:831: audio open error: No such file or directory", 1),
        ("paplay", "Connection failure: Connection refused", 1),
        ("play", "play FAIL sox: Sorry, there is no default audio device configured", 1),
        ("ffplay", "Failed to open file 'pipe:' or configure filtergraph", 0),
        ("aplay", "", 1),
    ],
)
@pytest.mark.parametrize("reads", [True, False])
def test_a_missing_sound_device_is_one_sentence_and_status_1(
    shell: Shell, tmp_path: Path, name: str, message: str, status: int, reads: bool
) -> None:
    lines = ["ALSA lib pcm.c:2666:(snd_pcm_open_noupdate) Unknown PCM default", message]
    script = [f"{shutil.which('cat')} > /dev/null"] if reads else []
    script += [f'echo "{line}" >&2' for line in lines if message]
    install_alone(shell, tmp_path / "bin", name, "\n".join([*script, f"exit {status}"]))
    failed = shell.run("speak", "Good morning. " * 40)
    assert failed.returncode == 1
    assert failed.stderr.count(b"\n") == 1
    reason = message or "it ended with status 1"
    assert f"{name} cannot play: {reason}; -o writes a file" in failed.stderr.decode()


@pytest.mark.parametrize("name", RECORDERS)
def test_a_missing_microphone_is_one_sentence_and_status_1(
    shell: Shell, tmp_path: Path, name: str
) -> None:
    install_alone(shell, tmp_path / "bin", name, "echo 'audio open error' >&2\nexit 1")
    failed = shell.run("listen", "--live")
    assert failed.returncode == 1
    assert f"{name} cannot record: audio open error; --raw reads stdin" in failed.stderr.decode()


def test_an_output_without_space_is_one_sentence_and_status_1(shell: Shell) -> None:
    full = shell.run("speak", "Good morning.", "-o", "/dev/full", "--format", "pcm")
    assert full.returncode == 1
    assert full.stderr.decode().endswith(": No space left on device\n")
    assert full.stderr.count(b"\n") == 1


def test_recordings_are_transcribed_into_each_format(shell: Shell, recording: Path) -> None:
    assert shell.output("listen", str(recording)).count("\n") == 1
    assert shell.output("listen", str(recording), "--redact", "name,phone").count("\n") == 1
    assert shell.run("listen", str(recording), "--redact", "names").returncode == 1
    assert "duration" in json.loads(shell.output("listen", str(recording), "--format", "json"))
    shell.output("listen", str(recording), "--format", "vtt", "--write")
    assert recording.with_suffix(".vtt").read_text().startswith("WEBVTT")


def test_recordings_whose_transcripts_would_be_one_file_are_refused(
    shell: Shell, recording: Path
) -> None:
    other = recording.with_suffix(".mp3")
    other.write_bytes(recording.read_bytes())
    refused = shell.run("listen", str(recording), str(other), "--write")
    assert refused.returncode == 2 and b"--write" in refused.stderr
    assert not recording.with_suffix(".txt").exists()


@pytest.fixture
def voice_file(tmp_path: Path) -> Iterator[tuple[Shell, Path]]:
    """A sealed file of a voice, and the shell of its service."""
    services, file = local_services(local_settings(tmp_path)), tmp_path / "ann.voice"
    file.write_bytes(sealed(services, 0, {}, passphrase=PASSPHRASE))
    with serve_services(services) as server:
        yield Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=server.key), file


def test_a_voice_is_shared_with_another_workspace_by_id_and_by_code(tmp_path: Path) -> None:
    services, file = local_services(local_settings(tmp_path)), tmp_path / "ann.voice"
    with serve_services(services) as server:
        shell = Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=server.key)
        own = shell.json("workspace")["id"]
        assert own in shell.output("workspace")
        file.write_bytes(sealed(services, int(own), {}))
        voice = shell.json("voices", "import", str(file))
        body = {"email": "friend@example.com", "password": "a long password"}
        friend = httpx.post(f"{server.url}/auth/signup", json=body, trust_env=False).json()
        other = Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=friend["token"])
        theirs = other.json("workspace")["id"]
        share = shell.json("voices", "share", voice["id"], theirs, "--yes")
        assert share["accepted_at"] is None and share["id"] in shell.output("voices", "shares")
        assert shell.run("voices", "accept", share["id"]).returncode == 1  # it is the owner's
        assert "Ann" in other.output("voices", "accept", share["id"])
        shell.output("voices", "unshare", share["id"], "--yes")
        code = shell.output("voices", "share-code", voice["id"], "--yes").strip()
        assert code.startswith("shr_") and code not in shell.output("voices", "shares")
        assert "Ann" in other.output("voices", "redeem", code)
        assert "accepted" in shell.output("voices", "shares")
        assert other.run("voices", "redeem", code).returncode == 1


def test_a_voice_is_imported_renamed_exported_and_deleted(
    voice_file: tuple[Shell, Path], tmp_path: Path
) -> None:
    shell, file = voice_file
    voice = shell.json("voices", "import", str(file), "--passphrase", PASSPHRASE)
    assert voice["status"] == "ready" and voice["is_imported"]
    assert "Ann" in shell.output("voices", "mine")
    assert "Beth" in shell.output("voices", "rename", voice["id"], "Beth")
    assert json.loads(shell.output("voices", "report", voice["id"]))["name"] == "Beth"
    copy = tmp_path / "copy.voice"
    secret = ("--passphrase", "a long passphrase")
    shell.output("voices", "export", voice["id"], str(copy), *secret)
    assert copy.stat().st_size > 500_000
    assert shell.run("voices", "export", "unknown", str(copy), *secret).returncode != 0
    assert copy.stat().st_size > 500_000
    noise = tmp_path / "noise.wav"
    noise.write_bytes(b"no audio")
    refused = shell.run("voices", "improve", voice["id"], "Better", str(noise))
    assert (refused.returncode, b"has no recordings" in refused.stderr) == (1, True)
    shell.output("voices", "delete", "--yes", voice["id"])
    wrong = shell.run("voices", "import", str(copy), "--passphrase", "another passphrase")
    assert (wrong.returncode, b"passphrase" in wrong.stderr) == (1, True)
    again = shell.json("voices", "import", str(copy), *secret)
    assert again["name"] == "Beth"
    shell.output("voices", "delete", "--yes", again["id"])


def test_live_audio_is_transcribed_from_a_pipe(shell: Shell, recording: Path) -> None:
    done = shell.run("listen", "--live", "--raw", given=bytes(32_000))
    assert done.returncode == 0 and b"Listening" in done.stderr


def test_a_try_speaks_listens_and_chats_or_names_what_failed(tmp_path: Path) -> None:
    recogniser = FakeTranscriber()
    with serve_services(local_services(local_settings(tmp_path), transcriber=recogniser)) as server:
        shell = Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=server.key)
        wrong = shell.run("try")
        assert wrong.returncode == 1 and wrong.stdout.startswith(b"speak ")
        assert wrong.stderr == b"Error: listen: the transcript is not what was spoken\n"
        recogniser.answer = partial(transcript, text=SENTENCE)
        lines = shell.output("try").splitlines()
        assert [line.split()[0] for line in lines[:3]] == ["speak", "listen", "chat"]
        assert all(re.match(r"\w+ +\d+\.\d\d s  \S", line) for line in lines[:3])
        steps = shell.json("try")["steps"]
        assert steps[1]["text"] == SENTENCE and steps[2]["seconds"] >= 0
        recogniser.errors = [EngineLost("the recogniser")] * 9
        lost = shell.run("try")
        assert lost.returncode == 1 and lost.stderr.startswith(b"Error: listen: ")


def test_every_command_has_an_example_and_operators_commands_a_section(shell: Shell) -> None:
    add_commands(antiphon)  # as the program does
    users, operators = shell.output("--help").split("Commands of operators:")
    assert (
        re.search(r"^  login .*^  try .*^  speak ", users, re.M | re.S) and "  serve " in operators
    )
    assert "  speak " not in operators and "Operators: " not in users + operators
    lacking = []
    for path, command in commands_of(antiphon, "antiphon"):
        context = click.Context(command, info_name=path)
        if not re.search(rf"^ *(Example: )?.*{path}\b", shown(command, context), re.M):
            lacking.append(path)
    assert not lacking


def commands_of(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path} {name}")
        else:
            imported = command.imported() if isinstance(command, ImportedCommand) else command
            yield f"{path} {name}", imported


def shown(command: click.Command, context: click.Context) -> str:
    """The help of a command without its first line, which has its name."""
    return command.get_help(context).partition("\n")[2]


def test_an_agent_hears_a_pipe_and_answers_into_one(tmp_path: Path) -> None:
    services = with_listening(local_services(local_settings(tmp_path)), FakeTranscriber())
    said = resample(np.concatenate([loud(1.5), quiet(1.5)]), 16_000, 24_000)
    with serve_services(services) as server:
        shell = Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=server.key)
        done = shell.run("--json", "talk", "--raw", given=float_to_pcm16(said))
    assert done.returncode == 0, done.stderr.decode()
    heard, answered = map(json.loads, done.stderr.decode().splitlines()[:2])
    assert heard["you"] and answered["agent"]
    assert len(done.stdout) > 16_000  # a third of a second


def test_models_are_listed_and_a_configuration_is_checked(shell: Shell, tmp_path: Path) -> None:
    assert "ready" in shell.output("models", "list")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("applications: 7")
    shell.environment["ANTIPHON_DATA"] = str(tmp_path)  # not the data of this checkout
    for command in ("check", "swap"):
        done = shell.run("models", command, str(wrong))
        assert done.returncode == 1 and b"ANTIPHON_DATA" in done.stderr
    assert b"--licence" in shell.run("models", "pull", "--help").stdout


def test_a_text_is_explained_and_spoken_with_markup_and_dictionaries(
    shell: Shell, tmp_path: Path
) -> None:
    names = ("pronunciations", "create", "Products", "Nginx=engine X", "SQL=/ˈsiːkwəl/")
    assert shell.output(*names) == "Products, version 1: 2 entries\n"
    text = "Nginx costs $5."
    assert "engine X costs five dollars." in shell.output("explain", text, "-p", "Products")
    marked = shell.json("explain", "--ssml", "<say-as interpret-as='characters'>BBC</say-as>")
    assert marked["sentences"][0]["text"] == "B, B, C"
    pls = tmp_path / "Products.pls"
    pls.write_text(shell.output("pronunciations", "export", "Products"), encoding="utf-8")
    assert "<alias>engine X</alias>" in pls.read_text(encoding="utf-8")
    assert "version 2: 2 entries" in shell.output("pronunciations", "import", str(pls))
    spoken = tmp_path / "a.wav"
    document = '<speak>Nginx.<break time="1s"/></speak>' + " " * 4000  # is not cut
    shell.output("speak", document, "-p", "Products", "-o", str(spoken))
    with wave.open(str(spoken)) as file:
        assert file.getnframes() > file.getframerate()
    shell.output("pronunciations", "delete", "Products", "--yes")
    assert "Products" not in shell.output("pronunciations", "list")


def test_transcripts_have_the_options_that_are_asked_for(shell: Shell, tmp_path: Path) -> None:
    two = tmp_path / "two.wav"
    two.write_bytes(wav(float_to_pcm16(np.repeat(loud(1.0), 2)), rate=16_000, channels=2))
    style = ("--numerals", "--profanity-filter", "-k", "Quixbury, Zorblatt")
    heard = shell.json("listen", str(two), "--multichannel", *style)
    assert [one["speaker"] for one in heard["utterances"]] == ["A", "B"]
    one_channel = tmp_path / "one.wav"
    one_channel.write_bytes(wav(float_to_pcm16(loud(1.0)), rate=16_000))
    alone = shell.run("listen", str(one_channel), "--multichannel")
    assert alone.returncode == 1 and b"one channel" in alone.stderr
    refused = shell.run("listen", str(two), "-k", "x" * 101)
    assert refused.returncode == 1 and b"keyterms" in refused.stderr
    live = shell.run("listen", "--live", "--raw", "-k", "x" * 101, given=bytes(3200))
    assert live.returncode == 1 and b"keyterms" in live.stderr
    translated = shell.run("listen", str(two), "--translate", "--speakers")
    assert b"Traceback" not in translated.stderr


def test_a_chat_is_answered_and_continued(shell: Shell) -> None:
    assert shell.output("chat", "one", "two").strip() == "one two"
    assert "piped" in shell.output("chat", "Say:", "-", given=b"piped words")
    first = shell.json("chat", "three")
    assert shell.json("chat", "four", "--chat", first["chat_id"])["chat_id"] == first["chat_id"]
    assert shell.output("chat", given=b"five\nsix\n").split() == ["five", "six"]


def test_a_file_is_corrected_in_place_and_its_changes_are_shown(
    shell: Shell, tmp_path: Path
) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("i beleive she dont know")
    diff = shell.run("correct", "-f", str(letter), "--diff")
    assert diff.returncode == 1 and b"+I believe she doesn't know." in diff.stdout
    assert "corrections" in shell.output("correct", "-f", str(letter), "--in-place")
    assert letter.read_text() == "I believe she doesn't know."
    assert shell.run("correct", "-f", str(letter), "--diff").returncode == 0
    untouched = shell.run("correct", "Ich weiss nicht, wo der Bahnhof ist.")
    assert untouched.stdout.decode().strip() == "Ich weiss nicht, wo der Bahnhof ist."
    assert b"Warning: text: parts that are not English were not corrected" in untouched.stderr
    untoned = shell.run("correct", "--tone", "pirate", "He go home.")  # by a model that echoes
    assert untoned.stdout.decode().strip() == "He goes home."
    assert b"Warning: style.tone: the wording was not changed" in untoned.stderr


def test_the_account_is_read_and_changed(shell: Shell) -> None:
    assert "English" in shell.output("voices", "list", "--language", "en")
    assert "free" in shell.output("plans") and "of credit are left" in shell.output("usage")
    assert "GB of storage are in use" in shell.output("usage")
    key = shell.json("keys", "create", "narrow", "--scope", "tts", "--expires", "2099-01-01")
    assert key["scopes"] == ["tts"] and "narrow" in shell.output("keys", "list")
    assert "60 requests per minute, 2 concurrent" in shell.output("plans")
    doubted = shell.run("keys", "delete", key["id"], given=b"n\n")
    assert doubted.returncode == 1 and "narrow" in shell.output("keys", "list")
    shell.output("keys", "delete", key["id"], "--yes")
    shell.output("chat", "one")
    by_key = shell.output("usage", "--by-key")
    assert "NAME" in by_key and "First key" in by_key
    hook = shell.output("webhooks", "add", "https://hooks.example.com/", "tts.completed").split()[0]
    assert hook in shell.output("webhooks", "list")
    shell.output("webhooks", "delete", hook, "--yes")


def test_a_key_goes_into_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config_file().parent.mkdir()
    config_file().touch(0o644)
    change, sizes = Path.chmod, list[int]()

    def noted(path: Path, mode: int) -> None:
        sizes.append(path.stat().st_size)
        change(path, mode)

    monkeypatch.setattr(Path, "chmod", noted)
    store("https://speech.example", "a key")
    assert sizes == [0] and config_file().stat().st_mode & 0o777 == 0o600


def test_a_login_stores_a_private_key_for_that_service_alone(
    server: Server, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, ANTIPHON_URL=server.url)
    refused = shell.run("usage")
    assert refused.returncode == 3
    assert refused.stderr.startswith(
        b"Error: the service asks for an API key; run `antiphon login`"
    )
    password = b"a long password\na long password\n"
    shell.output("login", "--email", "cli@example.com", "--sign-up", given=password)
    stored = tmp_path / "antiphon" / "config.toml"
    assert stored.stat().st_mode & 0o777 == 0o600
    del shell.environment["ANTIPHON_URL"]
    assert "5.000000 USD of credit" in shell.output("usage")
    shell.environment["ANTIPHON_URL"] = server.url.replace("127.0.0.1", "localhost")
    assert shell.run("usage").returncode == 3


def test_without_a_url_commands_use_the_port_of_the_environment(
    server: Server, tmp_path: Path
) -> None:
    port = server.url.rpartition(":")[2]
    shell = Shell(tmp_path, PORT=port, ANTIPHON_KEY=server.key)
    assert "USD of credit" in shell.output("usage")
    elsewhere = shell.run("--url", "http://127.0.0.1:9", "usage")
    assert elsewhere.returncode == 4 and b"http://127.0.0.1:9 does not" in elsewhere.stderr
    shell.environment["PORT"] = "9"
    shell.environment["ANTIPHON_URL"] = server.url
    assert "USD of credit" in shell.output("usage")
    (tmp_path / "antiphon").mkdir()
    (tmp_path / "antiphon" / "config.toml").write_text(f'url = "{server.url}"\n')
    del shell.environment["ANTIPHON_URL"]
    assert "USD of credit" in shell.output("usage")  # by the login
    shell.environment["PORT"] = "abc"
    (tmp_path / "antiphon" / "config.toml").unlink()
    wrong = shell.run("usage")
    assert wrong.returncode == 2 and b"Invalid port: 'abc'" in wrong.stderr


def test_commands_of_users_find_the_service_of_the_data_folder(
    server: Server, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shell = Shell(tmp_path, ANTIPHON_DATA=str(data), ANTIPHON_KEY=server.key)
    for name in ("ANTIPHON_URL", "PORT"):
        shell.environment.pop(name, None)
    with running.take(data, server.url) or pytest.fail("taken"):
        for command in (["usage"], ["voices", "list"], ["login"]):
            shell.output(*command, given=f"{server.key}\n".encode())
        (tmp_path / "antiphon" / "config.toml").write_text('url = "http://127.0.0.1:9"\n')
        stale = shell.run("usage")
        assert stale.returncode == 4
        assert stale.stderr.decode().endswith(f" runs at {server.url}: name it with --url\n")
    starting = "; it is still starting, or `antiphon doctor` says why it does not\n"
    with running.take(data, "http://127.0.0.1:9") or pytest.fail("taken"):
        for url, remedy in (
            ("http://127.0.0.1:9", starting),
            ("http://localhost:9", starting),
            ("https://127.0.0.1:9", "; name another with --url or ANTIPHON_URL\n"),
        ):
            assert shell.run("--url", url, "usage").stderr.decode().endswith(remedy)
    shell.environment["ANTIPHON_DATA"] = "~nouser/x"
    assert b"ANTIPHON_DATA: there is no home folder for '~nouser/x'" in shell.run("usage").stderr
    shell.environment["ANTIPHON_DATA"] = str(data)
    (tmp_path / "antiphon" / "config.toml").unlink()
    assert b"http://127.0.0.1:8000 does not answer" in shell.run("usage").stderr


def test_what_a_browser_token_may_not_do_names_keys_and_tokens(
    server: Server, tmp_path: Path
) -> None:
    headers = {"Authorization": f"Bearer {server.key}"}
    made = httpx.post(f"{server.url}/auth/tokens", json={"scopes": ["tts"]}, headers=headers)
    shell = Shell(tmp_path, ANTIPHON_URL=server.url, ANTIPHON_KEY=made.json()["token"])
    refused = shell.run("chat", "Hello.")
    assert refused.returncode == 1
    assert b"the API key or token lacks the scope 'chat'" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("speak", "x", "-o", "a.xyz"), 2, "--format is needed"),
        (("speak", " "), 2, "no text"),
        (("speak", "x", "-o", "-", "--format", "wav", "--voice", "Missing"), 1, "voice"),
        (("speak", "word " * 2000, "-o", "a.wav"), 2, "must be mp3, aac or opus"),
        (("listen",), 2, "name a recording"),
        (("listen", "/nowhere.wav"), 2, "does not exist"),
        (("chat", "a", "--model", "gpt-9"), 1, "no chat model"),
        (("correct", "a", "--in-place"), 2, "needs --file"),
        (("--key", "sk_wrong", "usage"), 3, "wrong, revoked or expired"),
        (("--url", "http://127.0.0.1:9", "usage"), 4, "start it with `antiphon serve`"),
        (("--url", "http://127.0.0.1:9", "try"), 4, "does not answer"),
        (("--key", "sk_wrong", "try"), 3, "antiphon login"),
        (("keys", "delete", "7", "--yes"), 1, "no API key"),
        (("--url", "127.0.0.1:9", "usage"), 2, "must start with http"),
        (("talk",), 2, "to record, install one of"),
        (("explain", "<speak>a<brake/></speak>"), 1, "column 9: <brake> is not supported"),
        (("explain", "--ssml", "a <brake/>"), 1, "line 1, column 3: <brake> is"),
        (("speak", "--ssml", "a\nb <brake/>", "-o", "a.mp3"), 1, "line 2, column 3: <brake> is"),
        (("speak", "x", "-o", "a.mp3", "-p", "None"), 1, "no dictionary is called None"),
        (("pronunciations", "create", "a", "b"), 1, "entries.0"),
        (("fly",), 2, "No such command"),
    ],
)
def test_a_failure_is_one_sentence_with_its_status(
    shell: Shell, arguments: tuple[str, ...], status: int, message: str
) -> None:
    shell.environment["PATH"] = ""  # no program that records
    done = shell.run(*arguments)
    assert done.returncode == status, done.stderr
    assert message in done.stderr.decode() and "Traceback" not in done.stderr.decode()


def test_every_command_of_operators_can_be_called_by_its_name() -> None:
    assert COMMANDS.keys() == operator.commands.keys()


@pytest.mark.slow
def test_commands_of_operators_take_their_own_arguments(tmp_path: Path) -> None:
    shell = Shell(tmp_path, ANTIPHON_DATA=str(tmp_path / "data"))
    about = shell.output("credit", "--help")
    assert "USD" in about and "Example: antiphon credit 25" in about
    refused = shell.run("credit", "25")
    assert refused.returncode == 1 and b"there is no database in" in refused.stderr
    assert "--num-cpus" in shell.output("serve", "--help")


@pytest.mark.parametrize("command", ["serve", "join", "weights", "doctor", "credit", "deploy"])
def test_help_of_operators_commands_names_the_command(shell: Shell, command: str) -> None:
    usage = shell.output(command, "--help").split("\n", 1)[0].casefold()
    assert usage.startswith(f"usage: antiphon {command}"), usage


def test_completion_of_the_shell_knows_the_commands(tmp_path: Path) -> None:
    asked = {"_ANTIPHON_COMPLETE": "bash_complete", "COMP_WORDS": "antiphon sp", "COMP_CWORD": "1"}
    assert "speak" in Shell(tmp_path, **asked).output()


@pytest.mark.slow
def test_the_doctor_finds_what_is_wrong_and_says_what_mends_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path, ANTIPHON_DATA=str(tmp_path / "data"))
    fresh = shell.run("doctor").stdout.decode()
    assert "there is no database in" in fresh and not (tmp_path / "data").exists()
    load = [sys.executable, "-c", "from configs.settings import load_settings; load_settings()"]
    subprocess.run(load, env=shell.environment, cwd=PROJECT_DIR, check=True)
    migrate(sqlite_url(tmp_path / "data" / "antiphon.db"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        shell.environment |= {
            "PORT": str(taken.getsockname()[1]),
            "REDIS_URL": "redis://127.0.0.1:9/0",
            "STORAGE_URL": "s3://x/y",
            "ANTIPHON_WEIGHTS": str(tmp_path / "none"),
        }
        done = shell.run("doctor")
    lines = {line.split()[1]: line for line in done.stdout.decode().splitlines()}
    assert done.returncode == 1 and b"Traceback" not in done.stderr
    for name, said in (("ports", "set HOST or PORT"), ("weights", "weights fetch"), ("redis", "9")):
        assert lines[name].startswith("FIX") and said in lines[name]
    assert lines["storage"].startswith("FIX") and lines["database"].startswith("ok")
    assert lines["chat"].endswith("llm/smollm2 is downloaded while the service runs")
