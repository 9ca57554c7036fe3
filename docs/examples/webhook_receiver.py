"""Receives the messages of webhooks, verifies them, and prints them.

SECRET=whsec_… python3 docs/examples/webhook_receiver.py [CERTIFICATE.pem KEY.pem]
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import ssl
import sys
import time
from collections.abc import Mapping

PORT = int(os.environ.get("HOOK_PORT", "9443"))
USAGE = "usage: SECRET=whsec_… python3 webhook_receiver.py [CERTIFICATE.pem KEY.pem]"
SECRET = os.environ.get("SECRET") or sys.exit(USAGE)
seen: set[str] = set()  # in your database: a message may come twice


def verify(headers: Mapping[str, str], body: bytes, secret: str) -> None:
    """Raises ValueError unless `body`, the bytes as they came, is a message of the service."""
    sent_at = int(headers["webhook-timestamp"] or "0")
    if abs(time.time() - sent_at) > 300:
        raise ValueError("too old, or from the future")
    if secret.startswith("whsec_"):
        key = base64.b64decode(secret.removeprefix("whsec_"))
    else:
        key = secret.encode()
    signed = f"{headers['webhook-id']}.{sent_at}.".encode() + body
    right = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    given = (headers["webhook-signature"] or "").split()
    if not any(hmac.compare_digest(f"v1,{right}", one) for one in given):
        raise ValueError("the signature is wrong")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            verify(self.headers, body, SECRET)
        except ValueError as error:
            self.send_error(400, str(error))
            return
        # Answer first and work later: after 15 s the message counts as failed.
        self.send_response(204)
        self.end_headers()
        if (identity := self.headers["webhook-id"]) not in seen:
            seen.add(identity)
            print(json.dumps(json.loads(body)), flush=True)


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler) as server:
        if sys.argv[1:]:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*sys.argv[1:])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.serve_forever()
