"""How to log in to a server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_mysql_cdc_wm.client.tls import Tls

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the server is, and who we are. The password is in no text of it."""

    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    tls: Tls = field(default_factory=Tls)
    patience_seconds: float = 0
    """For how long a server that cannot be reached is tried again."""
    server: str | None = None
    """What tells it from its replicas, if it must be the same as before: another may have taken over the address."""

    @property
    def where(self) -> str:
        """How errors and logs name the server."""
        return f"MySQL at {self.hostname}:{self.port}"

    @property
    def patient(self) -> ClientSettings:
        """The same, for a query that runs: a server that is restarted does not end it."""
        return replace(self, patience_seconds=ANSWER_SECONDS)

    def for_pymysql(self) -> dict[str, Any]:
        """Return what PyMySQL is called with; every wait has a limit.

        Raises:
            OptionError: a certificate that cannot be read.
        """
        return {
            "host": self.hostname,
            "port": self.port,
            "user": self.username,
            # Of a text PyMySQL takes Latin-1, which has few characters and is not what statements set passwords in.
            "password": self.password.encode("utf-8", "surrogateescape"),
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": ANSWER_SECONDS,
            "write_timeout": ANSWER_SECONDS,
            **self.tls.for_pymysql(),
        }
