"""Which store ``alignmentStore`` names: one of another package, or a database."""

from __future__ import annotations

import re
from importlib.util import find_spec

from watermark_source.group_store.failures import not_accepted
from watermark_source.group_store.file_database import FileDatabase
from watermark_source.group_store.store import Database, GroupStore, Store
from watermark_source.installation import to_install

_SQLITE = re.compile(r"sqlite(\+pysqlite)?://")
_FILE = re.compile(r"/(?P<path>[^?#]+)")
_A_FILE = "sqlite:////shared/alignment.sqlite"


def database_of(url: str) -> Database:
    """Return the database of a URL, validated without connecting.

    Raises:
        OptionError: the URL is invalid, or the package for its database is not installed.
    """
    if (scheme := _SQLITE.match(url)) is not None:
        file = _FILE.fullmatch(url, scheme.end())
        if url[scheme.end() :] in ("", "/") or (file is not None and file["path"] == ":memory:"):
            raise not_accepted(None, "other processes cannot open a database in memory")
        if file is None:
            accepted = "must be sqlite:/// and the path of a file, without a user or parameters"
            raise not_accepted("sqlite", accepted, example=_A_FILE)
        return FileDatabase(file["path"])
    if find_spec("sqlalchemy") is None:
        accepted = (
            "needs the package sqlalchemy for the URL of a server, which is not installed where the driver runs; "
            f"install it with: {to_install('alignment')}, and the database's own driver"
        )
        raise not_accepted(None, accepted, example=_A_FILE)
    # SQLAlchemy takes a third of a second to import, so only a server's URL imports it.
    from watermark_source.group_store.server_database import server_database  # noqa: PLC0415

    return server_database(url)


STORES = "watermark_source.group_stores"
"""The group of entry points by which a package adds stores: ``redis = "my_package:RedisStore"`` serves
``alignmentStore`` with ``redis://…``. The object is called with the URL, does not connect, and raises ``OptionError``
for a URL that it does not accept."""


def store_of(url: str) -> Store:
    """Return the store that ``alignmentStore`` names, checked as far as possible without connecting.

    Raises:
        OptionError: the URL is not accepted, or the package for its database is missing.
    """
    scheme = url.partition(":")[0]
    if not scheme.startswith("sqlite"):
        # Takes 30 ms to import, and a group of one driver needs none of it.
        from importlib.metadata import entry_points  # noqa: PLC0415

        for found in entry_points(group=STORES, name=scheme):
            made: Store = found.load()(url)
            return made
    return GroupStore(database_of(url))
