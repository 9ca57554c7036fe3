"""The official Node client of OpenAI, from npm, pinned."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.chat_server import ChatServer

VERSION = "7.55.0"
SCRIPT = Path(__file__).parent / "openai_node.mjs"
TEXT = "héllo 😀 big world"


@pytest.fixture(scope="module")
def node_script() -> Path:
    """The script in a folder where `openai` is installed; the folder is kept between runs."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed, so the Node client was NOT tried")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = cache / "antiphon" / f"openai-node-{VERSION}"
    if not (folder / "node_modules" / "openai" / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--no-audit", "--no-fund", f"openai@{VERSION}"]
        installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
        if installed.returncode:
            pytest.skip(f"npm could not install openai@{VERSION}, so the Node client was NOT tried")
    # Node looks for packages beside the script, so a copy goes there.
    return Path(shutil.copy(SCRIPT, folder / SCRIPT.name))


@pytest.mark.parametrize("prefix", ["/openai/v1", "/v1"])
def test_every_style_of_loop_reads_the_answer(
    server: ChatServer, node_script: Path, prefix: str
) -> None:
    ran = subprocess.run(
        ["node", str(node_script), server.url + prefix, server.token, TEXT],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert len(seen.pop("chatId")) == 36
    assert "the replica died" in seen.pop("broken")
    assert seen == {
        "whole": TEXT,
        "loop": TEXT,
        "helperDeltas": TEXT,
        "helper": TEXT,
        "finish": "stop",
        "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        "wrong": {
            "name": "BadRequestError",
            "code": "validation_error",
            "param": "temperature",
        },
    }
