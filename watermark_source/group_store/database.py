"""The database of a group's store: which one ``alignmentStore`` names, and what every database must offer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from watermark_source.errors import OptionError
from watermark_source.group_store.file_database import FileDatabase
from watermark_source.option_table import to_install

EXAMPLE = "postgresql+psycopg://user@host/database"
Row = Sequence[Any]

_SQLITE = re.compile(r"sqlite(\+pysqlite)?://")
_FILE = re.compile(r"/(?P<path>[^?#]+)")


class Database(Protocol):
    """One connection, which the first call opens and the next call after a failure reopens. Not thread-safe.

    Every call may raise:
        UnreachableError: the database does not answer.
        RefusedError: the database answers with a refusal.
    """

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the SQL dialect, by which ``statements`` are chosen."""
        ...

    @property
    def location(self) -> str:
        """Kind, host and name for logs and errors. The rest of the URL may hold secrets."""
        ...

    def exchange(self, row: Mapping[str, Any], *, has_report: bool, takes_over: bool) -> Row | None:
        """Write a member's row, and return the summary of the other members' rows, in the order of ``Answer``.

        Args:
            row: the member's row.
            has_report: whether the row carries a report. If not, an existing row keeps its last report.
            takes_over: whether the row may belong to another process, as after a restart.

        Returns:
            ``None`` if the row belongs to another process; nothing was written.
        """
        ...

    def query(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """Run one statement; return the first value of the first row, ``None`` without a row."""
        ...

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        ...


def database_of(url: str) -> Database:
    """Return the database of a URL, validated without connecting.

    Raises:
        OptionError: the URL is invalid, or the package for its database is not installed.
    """
    if (scheme := _SQLITE.match(url)) is not None:
        file = _FILE.fullmatch(url, scheme.end())
        if url[scheme.end() :] in ("", "/") or (file is not None and file["path"] == ":memory:"):
            raise OptionError(
                "alignmentStore", None, "other processes cannot open a database in memory", example=EXAMPLE
            )
        if file is None:
            raise OptionError(
                "alignmentStore", "sqlite", "must be sqlite:/// and the path of a file, without a user or parameters",
                example="sqlite:////shared/alignment.sqlite",
            )  # fmt: skip
        return FileDatabase(file["path"])
    if find_spec("sqlalchemy") is None:
        raise OptionError(
            "alignmentStore", None,
            "needs the package sqlalchemy for the URL of a server, which is not installed where the driver runs; "
            f"install it with: {to_install('alignment')}, and the database's own driver",
            example="sqlite:////shared/alignment.sqlite",
        )  # fmt: skip
    # SQLAlchemy takes a third of a second to import, so only a server's URL imports it.
    from watermark_source.group_store.server_database import server_database  # noqa: PLC0415

    return server_database(url, example=EXAMPLE)
