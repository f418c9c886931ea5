"""The table of members as SQLAlchemy has it, for servers; SQLite's is in ``file_database``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table

from watermark_source.alignment.group import LONGEST_NAME
from watermark_source.group_store.statements import INDEX, TABLE

METADATA = MetaData()
_NAME = String(LONGEST_NAME)
MEMBERS = Table(
    TABLE,
    METADATA,
    Column("group_name", _NAME, primary_key=True),
    Column("member", _NAME, primary_key=True),
    Column("writer", String(32), nullable=False),
    Column("source", _NAME, nullable=False),
    Column("max_drift", BigInteger),
    Column("status", String(16), nullable=False),
    Column("watermark", BigInteger),
    Column("counts_with", BigInteger),
    Column("time_to_live", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Index(INDEX, "group_name", "counts_with", "source"),
)
"""One row for each source that names a group. Times are milliseconds: ``watermark`` and ``counts_with``, which is null
of a member nobody waits for, of event time; ``seen`` of the database's own clock, so that nobody's clock has to agree
with anybody's. ``writer`` is the process that wrote the row last: two that have the same ``member``, because a
checkpoint was copied, see each other by it. ``file_database`` makes the same in SQLite."""
