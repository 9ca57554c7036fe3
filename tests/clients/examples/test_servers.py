"""The servers of docs/examples: the answer to a telephone call, the receiver of webhooks."""

import json
import os
import re
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import trustme
from standardwebhooks import Webhook
from websockets.sync.client import connect

from configs.settings import PROJECT_DIR
from tests.api.local_server import Server
from tests.clients.examples.programs import EXAMPLES, interpreter, running
from tests.servers import free_port

SECRET = "whsec_" + "Zm9y" * 8
LANGUAGES = pytest.mark.parametrize("suffix", [".py", ".mjs"])


@LANGUAGES
def test_a_call_is_connected_with_an_agent_that_speaks_first(
    tone_server: Server, suffix: str
) -> None:
    port = free_port()
    variables = {"ANTIPHON_URL": tone_server.url, "ANTIPHON_KEY": tone_server.key}
    with running(f"twilio_server{suffix}", port=port, CALLS_PORT=str(port), **variables):
        answer = httpx.post(f"http://127.0.0.1:{port}/", data={"CallSid": "CA1"})
    assert answer.headers["content-type"] == "text/xml"
    found = re.search(r'<Connect><Stream url="(ws://[^"]+/ek_[^"]+)">', answer.text)
    assert found is not None, answer.text
    assert '<Parameter name="speaks_first" value="true"/>' in answer.text
    with connect(found[1]) as call:
        call.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))


@LANGUAGES
def test_a_caller_hears_an_excuse_while_the_service_is_away(suffix: str) -> None:
    port, nothing = free_port(), free_port()
    # SERVICE is the name that version 1.0.0 documented.
    variables = {"SERVICE": f"http://127.0.0.1:{nothing}", "ANTIPHON_KEY": "sk_no"}
    with running(f"twilio_server{suffix}", port=port, CALLS_PORT=str(port), **variables) as program:
        answer = httpx.post(f"http://127.0.0.1:{port}/")
        assert program.stdout is not None
        assert f":{nothing} did not create a client secret" in program.stdout.readline()
    assert answer.status_code == 200 and "<Say>" in answer.text


def signed(identity: str, body: str, secret: str = SECRET) -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "webhook-id": identity,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(identity, now, body),
    }


@LANGUAGES
def test_the_receiver_takes_messages_that_are_signed_and_each_once(
    tmp_path_factory: pytest.TempPathFactory, suffix: str
) -> None:
    folder, port = tmp_path_factory.mktemp("receiver"), free_port()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    with (folder / "certificate.pem").open("wb") as file:
        file.write(certificate.cert_chain_pems[0].bytes())
    files = [str(folder / name) for name in ("certificate.pem", "key.pem")]
    body = '{"event": "tts.completed", "timestamp": "2026-11-26T00:00:00Z", "data": {}}'
    url = f"https://127.0.0.1:{port}/"
    trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with (
        running(
            f"webhook_receiver{suffix}", *files, port=port, HOOK_PORT=str(port), SECRET=SECRET
        ) as receiver,
        httpx.Client(verify=trust) as service,
    ):
        refused = [
            {},
            signed("evt_1", "other"),
            signed("evt_1", body, "whsec_" + "YWJj" * 8),
            signed("evt_1", body) | {"webhook-timestamp": "1700000000"},
            signed("evt_1", body) | {"webhook-timestamp": "x"},
        ]
        for headers in refused:
            assert service.post(url, headers=headers, content=body).status_code == 400, headers
        for identity in ("evt_1", "evt_1", "evt_2"):
            taken = service.post(url, headers=signed(identity, body), content=body)
            assert taken.status_code == 204
        assert receiver.stdout is not None
        lines = [receiver.stdout.readline() for _ in range(2)]
    assert [json.loads(line)["event"] for line in lines] == ["tts.completed"] * 2


def test_the_receiver_is_the_one_that_the_pages_show() -> None:
    shown = (PROJECT_DIR / "docs" / "tasks" / "webhooks.md").read_text()
    assert "../examples/webhook_receiver.py" in shown


def run_example(name: str, server: Server, *arguments: str, folder: Path | None = None) -> str:
    """Its output."""
    command = [*interpreter(name), str(EXAMPLES / name), *arguments]
    variables = {"ANTIPHON_URL": server.url, "ANTIPHON_KEY": server.key}
    done = subprocess.run(
        command, env=os.environ | variables, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@LANGUAGES
def test_names_are_spoken_by_the_dictionary_that_the_program_makes(
    tone_server: Server, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / "names.mp3"
    output = run_example(f"names{suffix}", tone_server, str(file))
    assert "restarted engine X at two thirty P M, and paid twelve dollars" in output
    assert "heard: " in output and file.stat().st_size > 1000


@pytest.mark.parametrize(
    "name",
    ["chat.mjs", "names.mjs", "names.py", "webhook_receiver.mjs", "webhook_receiver.py"],
)
def test_a_program_without_what_it_needs_shows_its_usage(name: str) -> None:
    done = subprocess.run(
        [*interpreter(name), str(EXAMPLES / name)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT_DIR)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"usage: .*{re.escape(name)}.*\n", done.stderr)


@pytest.mark.parametrize("name", ["chat.mjs", "live.mjs"])
def test_a_node_without_sockets_is_told_its_option(name: str) -> None:
    node, option = interpreter(name)
    command = [node, option.replace("--", "--no-"), str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"\nnode {option} docs/examples/{name}" in done.stderr


def test_the_programs_of_the_first_page_speak_listen_and_chat(
    tone_server: Server, tmp_path: Path
) -> None:
    output = run_example("quickstart.mjs", tone_server, folder=tmp_path)
    assert "data: " not in output and len(output.splitlines()) > 1
    assert (tmp_path / "hello.mp3").stat().st_size > 1000
    assert "s of speech" in run_example("live.mjs", tone_server)
    pcm = tmp_path / "answer.pcm"
    answer = run_example("chat.mjs", tone_server, str(pcm), "Alto").strip()
    assert answer and pcm.stat().st_size > len(answer) * 0.02 * 48_000  # bytes a second
    page = (PROJECT_DIR / "README.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    program = program.replace("http://127.0.0.1:8000", tone_server.url)
    variables = {"ANTIPHON_KEY": tone_server.key, "PYTHONPATH": str(PROJECT_DIR)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, cwd=tmp_path, text=True
    )
    assert done.returncode == 0
