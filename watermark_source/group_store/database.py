"""Databases in which members can meet, and which one ``alignmentStore`` names."""

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
    """One connection, made when it is first needed and again after it was lost. Not for several threads at once.

    Whatever is asked of it raises:
        UnreachableError: it does not answer.
        RefusedError: it does, and does not let us.
    """

    @property
    def dialect(self) -> str:
        """By which its statements are written."""
        ...

    @property
    def shown(self) -> str:
        """Kind, host and name: what else a URL has may be secret."""
        ...

    def exchange(self, own: Mapping[str, Any], *, tells: bool, takes_over: bool) -> Row | None:
        """Write a member's row, and return what is to be known of those that are elsewhere, in the order of ``Answer``.

        Args:
            own: the row.
            tells: whether it has anything to report; before, what the row says is left as it is.
            takes_over: whether the row may be another process's, as after a restart.

        Returns:
            ``None`` if the row is another process's, and nothing was written.
        """
        ...

    def ask(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """Run one statement; return the first value of the first row, ``None`` if there is none."""
        ...

    def close(self) -> None:
        """Close the connection; the next call makes another."""
        ...


def database_of(url: str) -> Database:
    """Return the database of a URL, checked as far as that goes without a connection.

    Raises:
        OptionError: it is no such URL, or the package for its database is missing.
    """
    if (found := _SQLITE.match(url)) is not None:
        file = _FILE.fullmatch(url, found.end())
        if url[found.end() :] in ("", "/") or (file is not None and file["path"] == ":memory:"):
            raise OptionError("alignmentStore", None, "a database in memory is nobody else's", example=EXAMPLE)
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
    # Loaded where it is needed: it takes a third of a second.
    from watermark_source.group_store.server_database import server_database  # noqa: PLC0415

    return server_database(url, example=EXAMPLE)
