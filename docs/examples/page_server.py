"""Serves the pages beside it, and gives each visitor a short-lived credential, not the API key.

ANTIPHON_KEY=sk_… python3 docs/examples/page_server.py      http://localhost:9000/captions.html
"""

import functools
import http.server
import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SERVICE = os.environ.get("ANTIPHON_URL") or os.environ.get("SERVICE", "http://127.0.0.1:8000")
PORT = int(os.environ.get("PAGE_PORT", "9000"))
FOLDER = Path(__file__).parent
AGENT = {
    "type": "realtime",
    "model": "gpt-realtime",
    "instructions": "You answer visitors of a bakery's web page. Greet the visitor. Be brief.",
    "max_output_tokens": 200,
    "audio": {"input": {"transcription": {"model": "whisper-1", "language": "en"}}},
}


def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{SERVICE}{path}",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {os.environ['ANTIPHON_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        credential: dict[str, Any] = json.load(answer)
    return credential


def token() -> dict[str, str]:
    """A credential for speech and transcription, valid for ten minutes."""
    credential = ask("/auth/tokens", {"scopes": ["stt", "tts"], "expires_in": 600})
    return {"service": SERVICE, "token": credential["token"]}


def client_secret() -> dict[str, str]:
    """A credential for calls with this agent, which must begin within a minute."""
    body = {"expires_after": {"seconds": 60}, "session": AGENT}
    credential = ask("/openai/v1/realtime/client_secrets", body)
    return {"service": SERVICE, "secret": credential["value"]}


CREDENTIALS = {"/token": token, "/client-secret": client_secret}


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        # Only pages: the folder has programs, too.
        if not self.path.partition("?")[0].endswith(".html"):
            self.send_error(404)
            return
        super().do_GET()

    def do_POST(self) -> None:
        """Give a credential. On your own server, first check that the visitor is logged in."""
        if self.path not in CREDENTIALS:
            self.send_error(404)
            return
        try:
            body = json.dumps(CREDENTIALS[self.path]()).encode()
        except (urllib.error.URLError, TimeoutError) as error:
            self.send_error(502, f"no credential: {error}")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    handler = functools.partial(Handler, directory=str(FOLDER))
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
