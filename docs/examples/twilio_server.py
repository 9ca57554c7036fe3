"""Answers telephone calls: tells Twilio to connect each call with a voice agent of the service.

ANTIPHON_KEY=sk_… ANTIPHON_URL=https://speech.example.com python3 docs/examples/twilio_server.py
"""

import http.server
import json
import os
import urllib.error
import urllib.request
from xml.sax.saxutils import quoteattr

SERVICE = os.environ.get("ANTIPHON_URL") or os.environ.get("SERVICE", "http://127.0.0.1:8000")
PORT = int(os.environ.get("CALLS_PORT", "9001"))
AGENT = {
    "type": "realtime",
    "instructions": "You answer the telephone of a bakery. Greet the caller. Be brief.",
    "max_output_tokens": 200,
}


def client_secret() -> str:
    """The credential of one call. It expires soon, and contains the agent's instructions."""
    body = {"expires_after": {"seconds": 60}, "session": AGENT}
    request = urllib.request.Request(
        f"{SERVICE}/openai/v1/realtime/client_secrets",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {os.environ['ANTIPHON_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["value"])


def twiml() -> str:
    try:
        url = SERVICE.replace("http", "ws", 1) + f"/telephony/twilio/{client_secret()}"
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"{SERVICE} did not create a client secret: {error}", flush=True)
        return "<Response><Say>We cannot answer now. Please call again later.</Say></Response>"
    parameter = '<Parameter name="speaks_first" value="true"/>'
    stream = f"<Stream url={quoteattr(url)}>{parameter}</Stream>"
    return f"<Response><Connect>{stream}</Connect></Response>"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = f'<?xml version="1.0" encoding="UTF-8"?>{twiml()}'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler) as server:
        server.serve_forever()
