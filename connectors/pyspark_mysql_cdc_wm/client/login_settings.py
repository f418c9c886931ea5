"""How to log in to a server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_mysql_cdc_wm.client.tls import Tls

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The server's address and the login. No text form of it has the password."""

    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    tls: Tls = field(default_factory=Tls)
    patience_seconds: float = 0
    """How long in seconds to retry while the server cannot be reached."""
    server: str | None = None
    """The identity of the only server to connect to; ``None`` for any. A fail-over can move the address."""

    @property
    def where(self) -> str:
        """The server's name in errors and logs."""
        return f"MySQL at {self.hostname}:{self.port}"

    @property
    def patient(self) -> ClientSettings:
        """The same settings with retries, so that a restart of the server does not end a running query."""
        return replace(self, patience_seconds=ANSWER_SECONDS)

    def for_pymysql(self) -> dict[str, Any]:
        """Return PyMySQL's arguments, with a time limit for each wait.

        Raises:
            OptionError: a certificate cannot be read.
        """
        return {
            "host": self.hostname,
            "port": self.port,
            "user": self.username,
            # PyMySQL encodes a str as Latin-1, but statements set passwords in UTF-8.
            "password": self.password.encode("utf-8", "surrogateescape"),
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": ANSWER_SECONDS,
            "write_timeout": ANSWER_SECONDS,
            **self.tls.for_pymysql(),
        }
