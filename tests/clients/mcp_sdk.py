"""The client of MCP's own SDK, and OpenAI's Agents SDK with the server's tools. Arguments: URL,
key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import anyio
import httpx2
from agents import Agent
from agents.mcp import MCPServerStreamableHttp
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

SENTENCE = "A sentence for the room."
LONG = " ".join([SENTENCE] * 150)


def transport(url: str, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    return streamable_http_client(
        f"{url}/mcp", http_client=httpx2.AsyncClient(headers=headers, timeout=30)
    )


async def see(url: str, key: str, path: Path, mode: Any) -> dict[str, Any]:
    async with Client(transport(url, key), mode=mode) as connected:
        client: Any = connected
        tools = await client.list_tools()
        spoken = await client.call_tool("speak", {"text": SENTENCE, "output_format": "wav"})
        sound = b64encode(path.read_bytes()).decode()
        heard = await client.call_tool("transcribe", {"audio": sound})
        voices = await client.call_tool("voices", {"language": "en"})
        wrong = await client.call_tool("speak", {"text": SENTENCE, "voice": "unknown"})
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("speak", {"text": LONG})
        again = await client.call_tool("voices", {})
        return {
            "version": client.protocol_version,
            "tools": [one.name for one in tools.tools],
            "audio": [spoken.content[0].type, spoken.content[0].mime_type],
            "bytes": len(b64decode(spoken.content[0].data)),
            "text": heard.structured_content["text"],
            "voices": len(voices.structured_content["voices"]),
            "wrong": [wrong.is_error, wrong.content[0].text],
            "cancelled": scope.cancelled_caught,
            "after": again.is_error,
        }


async def refused(url: str) -> str:
    try:
        async with Client(transport(url, "sk_wrong"), mode="legacy"):
            return ""
    except BaseException as error:  # a group of them
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return f"{type(error).__name__}: {error}"


async def with_agents(url: str, key: str) -> dict[str, Any]:
    params = {"url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {key}"}}
    async with MCPServerStreamableHttp(params) as server:
        tools = await Agent(name="Speaker", mcp_servers=[server]).get_mcp_tools(None)
        spoken = await server.call_tool("speak", {"text": SENTENCE})
        return {
            "tools": [one.name for one in tools],
            "audio": [one.type for one in spoken.content],
        }


async def main() -> None:
    url, key, path = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    seen = {
        "new": await see(url, key, path, "auto"),
        "old": await see(url, key, path, "legacy"),
        "refused": await refused(url),
        "agents": await with_agents(url, key),
    }
    sys.stdout.write(json.dumps(seen) + "\n")


asyncio.run(main())
