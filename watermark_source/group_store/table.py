"""The table of members: one row for each source that names a group, in a database that all of them reach."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement

from watermark_source.alignment.group import LONGEST_NAME, MemberStatus

COMING = "coming"
"""Status of one that has not told anything yet: it is about to, and is not there before."""
IDLE = MemberStatus.IDLE.value
METADATA = MetaData()
_NAME = String(LONGEST_NAME)
MEMBERS = Table(
    "watermark_source_members",
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
    Index("watermark_source_slowest", "group_name", "counts_with", "source"),
)
"""Times are milliseconds: ``watermark`` and ``counts_with``, which is null of a member nobody waits for, of event time;
``seen`` of the database's own clock, so that nobody's clock has to agree with anybody's. ``writer`` is the process that
wrote the row last: two that have the same ``member``, because a checkpoint was copied, see each other by it."""


class StoreClock(ColumnElement[int]):
    """Milliseconds since 1970-01-01 by the database's clock."""

    type = BigInteger()
    inherit_cache = True


@compiles(StoreClock)
def _standard(*_: Any, **__: Any) -> str:
    # What every database has goes by whole seconds.
    return "(CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT) * 1000)"


@compiles(StoreClock, "sqlite")
def _sqlite(*_: Any, **__: Any) -> str:
    # As a question of its own it is asked once a statement, and not for each row.
    return "(SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))"


@compiles(StoreClock, "postgresql")
def _postgresql(*_: Any, **__: Any) -> str:
    return "(SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT))"


@compiles(StoreClock, "mysql", "mariadb")
def _mysql(*_: Any, **__: Any) -> str:
    # Not of NOW(), of which a time zone may have an hour twice.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"


@compiles(StoreClock, "mssql")
def _mssql(*_: Any, **__: Any) -> str:
    return "DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())"


@compiles(StoreClock, "oracle")
def _oracle(*_: Any, **__: Any) -> str:
    days = "(CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01')"
    return f"CAST({days} * 86400000 AS NUMBER(19))"
