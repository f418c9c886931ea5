"""A schema registry's API on this machine, with the answers that a test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyspark_aligned_kafka.client import kept_schemas
from pyspark_aligned_kafka.records import avro_columns


def forget_schemas() -> None:
    """Request and resolve all schemas again."""
    for kept in (kept_schemas._schemas, kept_schemas._requested_again, avro_columns._resolutions):
        kept.clear()
    kept_schemas._known_version.cache_clear()


class Registry:
    """What the server answers, and what it was asked."""

    def __init__(self, answers: MutableMapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.statuses: list[int] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.cut = 0
        """How many of the next responses end in the middle."""
        self.port = 0

    def handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.logins.append(self.headers.get("Authorization"))
                registry.may_answer.wait(120)
                status = registry.statuses.pop(0) if registry.statuses else 200
                answer = registry.answers.get(self.path)
                if answer is None:
                    status, answer = 404, {"error_code": 40403, "message": "Schema not found"}
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if registry.cut:
                    registry.cut -= 1
                    body = body[: len(body) // 2]
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def schema_registry(answers: MutableMapping[str, Any]) -> Iterator[Registry]:
    """Serve the answers, by their paths, until the end of the block."""
    # Another server had the port before, perhaps.
    forget_schemas()
    registry = Registry(answers)
    with ThreadingHTTPServer(("127.0.0.1", 0), registry.handler()) as server:
        registry.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
