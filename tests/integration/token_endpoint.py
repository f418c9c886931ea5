"""A token endpoint of OAuth 2.0 on this machine, over TLS: gives out unsecured JWTs for one client's id and secret."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PEM = Path(__file__).parents[1] / "certificates"


def unsecured_token(subject: str, lifetime: float, scope: str = "kafka") -> str:
    """Return a JWT without a signature, as Kafka's own validator for tests accepts it."""
    claims = {"sub": subject, "iat": time.time(), "exp": time.time() + lifetime, "scope": scope}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


class TokenEndpoint:
    """What it gives out, which a test may change, and what it was asked."""

    def __init__(self, url: str, client_id: str, secret: str) -> None:
        self.url = url
        self.who = "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        self.lifetime = 3_600.0
        self.returns_lifetime = True
        self.status = 200
        self.answer: bytes | None = None
        self.location: str | None = None
        self.asked: list[dict[str, list[str]]] = []
        self.given: list[str] = []

    def respond(self, authorization: str | None, form: dict[str, list[str]]) -> tuple[int, bytes]:
        self.asked.append(form)
        if authorization != self.who:
            reported = {"error": "invalid_client", "error_description": f"not {authorization}"}
            return 401, json.dumps(reported).encode()
        if self.answer is not None or self.status != 200:
            return self.status, self.answer or b""
        self.given.append(unsecured_token("u", self.lifetime))
        answer = {"access_token": self.given[-1], "token_type": "Bearer"}
        return 200, json.dumps(answer | ({"expires_in": self.lifetime} if self.returns_lifetime else {})).encode()


@contextmanager
def token_endpoint(client_id: str, secret: str) -> Iterator[TokenEndpoint]:
    """Serve on a free port of the loopback interface until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = endpoint.respond(self.headers["Authorization"], urllib.parse.parse_qs(body))
            self.send_response(status)
            if endpoint.location is not None:
                self.send_header("Location", endpoint.location)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM / "broker.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint = TokenEndpoint(f"https://127.0.0.1:{server.server_port}/token", client_id, secret)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
