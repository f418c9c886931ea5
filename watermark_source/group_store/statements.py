"""The SQL statements of the store, as text with named parameters: for ``sqlite3`` and for SQLAlchemy alike."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from watermark_source.planning.group import LONGEST_NAME, MemberStatus

TABLE = "watermark_source_members"
OWN_ROW = f"SELECT member FROM {TABLE} WHERE group_name = :group_name AND member = :member"
"""The query for a member's own row."""
LEAVE = f"DELETE FROM {TABLE} WHERE group_name = :group_name AND member = :member AND writer = :writer"
"""The statement that deletes a member's row, if it is that of a writer."""
INDEX = "watermark_source_slowest"
COMING = "coming"
"""Status of a member that has joined and not reported yet: it does not count as present."""
IDLE = MemberStatus.IDLE.value
KEY = ("group_name", "member")
COLUMNS = (*KEY, "writer", "source", "max_drift", "status", "watermark", "counts_with", "time_to_live", "seen")
TEXTS = {**dict.fromkeys((*KEY, "source"), LONGEST_NAME), "writer": 32, "status": 16}
"""Columns of text, with their lengths; the others have 64-bit numbers."""
NULLABLE = ("max_drift", "watermark", "counts_with")
INDEXED = ("group_name", "counts_with", "source")
_SOURCE = ("source", "max_drift", "time_to_live")
_REPORT = ("status", "watermark", "counts_with")
OWN = (*KEY, "writer", *_SOURCE, *_REPORT)
"""Parameters of the statements that write a row."""
AT_ONCE = ("postgresql", "sqlite")
"""Dialects in which one statement can write a row and read the others (``INSERT … RETURNING``)."""
_SILENT_FOR = 10
"""Any member that joins also deletes rows that were silent for this many times their time-to-live."""
LISTED = 50
"""Limit on the members that one list has."""
_MOST_ROWS = {"mssql": (f"TOP {LISTED} ", ""), "oracle": ("", f" FETCH FIRST {LISTED} ROWS ONLY")}
LONGEST_TIME_TO_LIVE = 86_400_000
"""Milliseconds, one day: no source writes a longer time-to-live, and a longer one counts as one day."""
_TIME_TO_LIVE = (
    f"CASE WHEN {{row}}time_to_live > {LONGEST_TIME_TO_LIVE} THEN {LONGEST_TIME_TO_LIVE} "
    "WHEN {row}time_to_live < 0 THEN -1 ELSE {row}time_to_live END"
)
_DAYS_OF_ORACLE = "(CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01')"
_CLOCKS = {
    # As a subquery it is evaluated once for a statement, not once for each row.
    "sqlite": "(SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
    "postgresql": "(SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT))",
    # NOW() is local time, in which an hour may occur twice.
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
    "mssql": "DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())",
    "oracle": f"CAST({_DAYS_OF_ORACLE} * 86400000 AS NUMBER(19))",
}
# Standard SQL has whole seconds only.
_STANDARD_CLOCK = "(CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT) * 1000)"


@lru_cache
def write_and_read(dialect: str, *, has_report: bool, takes_over: bool) -> str:
    """Return the statement of an ``AT_ONCE`` dialect that writes a member's row and returns ``others``.

    It returns no row if the member's row belongs to another process.
    """
    updated = ", ".join(f"{name} = excluded.{name}" for name in (*_updated(has_report=has_report), "seen"))
    where = "" if takes_over else f" WHERE {TABLE}.writer = excluded.writer"
    return (
        f"{insert(dialect)} ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {updated}{where} "
        f"RETURNING {', '.join(_summary(dialect))}"
    )


def update(dialect: str, *, has_report: bool, takes_over: bool) -> str:
    """Return the statement that updates a member's row; without ``takes_over`` only a row of the same writer."""
    values = [*(f"{name} = :{name}" for name in _updated(has_report=has_report)), f"seen = {_clock(dialect)}"]
    own = [f"{name} = :{name}" for name in (*KEY, *(() if takes_over else ("writer",)))]
    return f"UPDATE {TABLE} SET {', '.join(values)} WHERE {' AND '.join(own)}"


def insert(dialect: str) -> str:
    """Return the statement that inserts a member's row; an existing row is an integrity error."""
    names, values = ", ".join(OWN), ", ".join(f":{name}" for name in OWN)
    return f"INSERT INTO {TABLE} ({names}, seen) VALUES ({values}, {_clock(dialect)})"


def others(dialect: str) -> str:
    """Return the query that summarizes the other members' rows, in the order of ``Answer``."""
    return f"SELECT {', '.join(_summary(dialect))}{' FROM DUAL' if dialect == 'oracle' else ''}"


def members(dialect: str) -> str:
    """Return the query for the other members' rows, in the order of ``MemberRow``, the ``LISTED`` most silent first.

    Members are in it until they were silent for ``_SILENT_FOR`` times their time-to-live.
    """
    clock, limit = _clock(dialect), _TIME_TO_LIVE.format(row="o.")
    columns = f"o.source, o.status, o.watermark, {limit}, {clock} - o.seen, o.member, o.writer"
    where = f"o.group_name = :group_name AND o.member <> :member AND o.seen >= {clock} - {_SILENT_FOR} * {limit}"
    top, last = _MOST_ROWS.get(dialect, ("", f" LIMIT {LISTED}"))
    return f"SELECT {top}{columns} FROM {TABLE} o WHERE {where} ORDER BY o.seen, o.source{last}"


def listed(members: Iterable[str]) -> str:
    """Return members' names as the parameter ``apart``: those that are not in the lowest watermark of ``others``."""
    return f",{','.join(members)},"


def forget(dialect: str) -> str:
    """Return the statement that deletes the rows of members that were silent for long."""
    silent = f"{_clock(dialect)} - {_SILENT_FOR} * {_TIME_TO_LIVE.format(row='')}"
    return f"DELETE FROM {TABLE} WHERE group_name = :group_name AND seen < {silent}"


def _updated(*, has_report: bool) -> tuple[str, ...]:
    return ("writer", *_SOURCE, *(_REPORT if has_report else ()))


def _clock(dialect: str) -> str:
    """Return the expression of the database's clock, in milliseconds since 1970-01-01 UTC."""
    return _CLOCKS.get("mysql" if dialect == "mariadb" else dialect, _STANDARD_CLOCK)


def _summary(dialect: str) -> tuple[str, ...]:
    clock, limit = _clock(dialect), _TIME_TO_LIVE.format(row="o.")

    def living(expression: str, *where: str) -> str:
        """Return a subquery over the other members that were seen within their time-to-live."""
        # A row seen in the future is not alive: the database's clock was set back, and the member writes again within
        # a second. The bounds are added to the clock, not subtracted from ``seen``: a foreign row may hold any 64-bit
        # number.
        is_seen = f"o.seen BETWEEN {clock} - {limit} AND {clock} + {limit}"
        conditions = ("o.group_name = :group_name", "o.member <> :member", is_seen, *where)
        return f"(SELECT {expression} FROM {TABLE} o WHERE {' AND '.join(conditions)})"

    # REPLACE and LIKE are in every dialect, and a member's name has no character that is special to them.
    is_counted = ":apart NOT LIKE REPLACE('%,#,%', '#', o.member)"
    minimum = living("MIN(o.counts_with)", is_counted)
    name = f"{'SUBSTRING' if dialect == 'mssql' else 'SUBSTR'}(MIN(o.source), 1, {LONGEST_NAME})"
    drift = living("MIN(o.max_drift)")
    return (
        minimum,
        # MIN(o.source) breaks ties the same way in every query.
        living(name, f"o.counts_with = {minimum}", is_counted),
        living("COUNT(*)", f"o.status <> '{COMING}'"),
        living("COUNT(*)", f"o.status = '{COMING}'"),
        clock,
        drift,
        living(name, f"o.max_drift = {drift}"),
        living("MAX(o.watermark)", f"o.status = '{IDLE}'"),
        living(name, f"o.time_to_live > {LONGEST_TIME_TO_LIVE}"),
    )
