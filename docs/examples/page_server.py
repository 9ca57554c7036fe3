"""Serves the pages beside it, and gives each visitor a token in place of the API key.

ANTIPHON_KEY=sk_… python3 docs/examples/page_server.py      http://localhost:9000/captions.html
"""

import functools
import http.server
import json
import os
import urllib.error
import urllib.request
from pathlib import Path

SERVICE = os.environ.get("SERVICE", "http://127.0.0.1:8000")
PORT = int(os.environ.get("PAGE_PORT", "9000"))
FOLDER = Path(__file__).parent


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        # Only pages: the folder has programs, too.
        if not self.path.partition("?")[0].endswith(".html"):
            self.send_error(404)
            return
        super().do_GET()

    def do_POST(self) -> None:
        """A token for ten minutes of speech and transcription. Ask for your own login before."""
        request = urllib.request.Request(
            f"{SERVICE}/auth/tokens",
            json.dumps({"scopes": ["stt", "tts"], "expires_in": 600}).encode(),
            {
                "Authorization": f"Bearer {os.environ['ANTIPHON_KEY']}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                token = json.load(answer)["token"]
        except (urllib.error.URLError, TimeoutError) as error:
            self.send_error(502, f"no token: {error}")
            return
        body = json.dumps({"service": SERVICE, "token": token}).encode()
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
