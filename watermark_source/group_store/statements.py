"""The statements by which members meet, as text with named parameters: for SQLite itself and for SQLAlchemy alike."""

from __future__ import annotations

from functools import lru_cache

from watermark_source.planning.group import LONGEST_NAME, MemberStatus

TABLE = "watermark_source_members"
INDEX = "watermark_source_slowest"
COMING = "coming"
"""Status of one that has not told anything yet: it is about to, and is not there before."""
IDLE = MemberStatus.IDLE.value
KEY = ("group_name", "member")
_WHO = ("source", "max_drift", "time_to_live")
_REPORT = ("status", "watermark", "counts_with")
OWN = (*KEY, "writer", *_WHO, *_REPORT)
"""Parameters of the statements that write a row."""
AT_ONCE = ("postgresql", "sqlite")
"""Databases that can write and tell in one statement."""
_SILENT_FOR = 10
"""A row is removed when its member was silent for so many times its time-to-live."""
LONGEST_TIME_TO_LIVE = 86_400_000
"""Milliseconds, a day: a row with more in it counts as one with so much. No source writes more."""
_TIME_TO_LIVE = (
    f"CASE WHEN {{row}}time_to_live > {LONGEST_TIME_TO_LIVE} THEN {LONGEST_TIME_TO_LIVE} "
    "WHEN {row}time_to_live < 0 THEN -1 ELSE {row}time_to_live END"
)
_DAYS_OF_ORACLE = "(CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01')"
_CLOCKS = {
    # As a question of its own it is asked once a statement, and not for each row.
    "sqlite": "(SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
    "postgresql": "(SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT))",
    # Not of NOW(), of which a time zone may have an hour twice.
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
    "mssql": "DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())",
    "oracle": f"CAST({_DAYS_OF_ORACLE} * 86400000 AS NUMBER(19))",
}
# What every database has goes by whole seconds.
_STANDARD_CLOCK = "(CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT) * 1000)"


def write_and_tell(dialect: str, *, tells: bool, takes_over: bool) -> str:
    """Return the statement of ``AT_ONCE``: writes a member's row, and gives ``answer``; no row if it is another's."""
    return _write_and_tell(dialect, tells, takes_over)


def change(dialect: str, *, tells: bool, takes_over: bool) -> str:
    """Return the statement that changes a member's row, if it is there and, unless it takes over, still its own."""
    values = [*(f"{name} = :{name}" for name in _changed(tells=tells)), f"seen = {_clock(dialect)}"]
    own = [f"{name} = :{name}" for name in (*KEY, *(() if takes_over else ("writer",)))]
    return f"UPDATE {TABLE} SET {', '.join(values)} WHERE {' AND '.join(own)}"


def add(dialect: str) -> str:
    """Return the statement that adds a member's row; an error if it is there."""
    names, values = ", ".join(OWN), ", ".join(f":{name}" for name in OWN)
    return f"INSERT INTO {TABLE} ({names}, seen) VALUES ({values}, {_clock(dialect)})"


def answer(dialect: str) -> str:
    """Return the question about those that are elsewhere, in the order of ``Answer``."""
    return f"SELECT {', '.join(_of_others(dialect))}{' FROM DUAL' if dialect == 'oracle' else ''}"


def taken() -> str:
    """Return the question whether a member's row is there."""
    return f"SELECT member FROM {TABLE} WHERE group_name = :group_name AND member = :member"


def other_drift(dialect: str, *, alive: bool) -> str:
    """Return the question for the drift of an ``alive`` or silent member that has another one than ``:max_drift``."""
    return f"SELECT {_ask_members(dialect, 'MIN(o.max_drift)', 'o.max_drift <> :max_drift', alive=alive)}" + (
        " FROM DUAL" if dialect == "oracle" else ""
    )


def leave(dialect: str) -> str:
    """Return the statement that removes a row, if still its own, and those of members silent for very long."""
    return (
        f"DELETE FROM {TABLE} WHERE group_name = :group_name AND ((member = :member AND writer = :writer) "
        f"OR seen < {_clock(dialect)} - {_SILENT_FOR} * {_TIME_TO_LIVE.format(row='')})"
    )


@lru_cache
def _write_and_tell(dialect: str, tells: bool, takes_over: bool) -> str:
    changed = ", ".join(f"{name} = excluded.{name}" for name in (*_changed(tells=tells), "seen"))
    where = "" if takes_over else f" WHERE {TABLE}.writer = excluded.writer"
    return (
        f"{add(dialect)} ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {changed}{where} "
        f"RETURNING {', '.join(_of_others(dialect))}"
    )


def _changed(*, tells: bool) -> tuple[str, ...]:
    return ("writer", *_WHO, *(_REPORT if tells else ()))


def _clock(dialect: str) -> str:
    """Return what gives the milliseconds since 1970-01-01 by the database's clock."""
    return _CLOCKS.get("mysql" if dialect == "mariadb" else dialect, _STANDARD_CLOCK)


def _ask_members(dialect: str, what: str, *where: str, alive: bool = True) -> str:
    """Return a question about the other members: those heard of within their time-to-live, or those that were not."""
    # One that was heard of in the future was not: the clock was set back, and it is heard of again within a second.
    # Compared and not subtracted: a foreign row may hold any number of 64 bits.
    clock, limit = _clock(dialect), _TIME_TO_LIVE.format(row="o.")
    within = f"o.seen BETWEEN {clock} - {limit} AND {clock} + {limit}"
    conditions = (
        "o.group_name = :group_name",
        "o.member <> :member",
        within if alive else f"NOT ({within})",
        *where,
    )
    return f"(SELECT {what} FROM {TABLE} o WHERE {' AND '.join(conditions)})"


def _of_others(dialect: str) -> tuple[str, ...]:
    def living(what: str, *where: str) -> str:
        return _ask_members(dialect, what, *where)

    minimum = living("MIN(o.counts_with)")
    name = f"{'SUBSTRING' if dialect == 'mssql' else 'SUBSTR'}(MIN(o.source), 1, {LONGEST_NAME})"
    # Of several that come at once with different drifts the first by name has the group's.
    before_us = ("o.member < :member", "o.max_drift IS NOT NULL")
    return (
        minimum,
        # Of equal ones always the same.
        living(name, f"o.counts_with = {minimum}"),
        living("COUNT(*)", f"o.status <> '{COMING}'"),
        living("COUNT(*)", f"o.status = '{COMING}'"),
        _clock(dialect),
        living("MIN(o.max_drift)", f"o.member = {living('MIN(o.member)', *before_us)}"),
        living("MAX(o.watermark)", f"o.status = '{IDLE}'"),
        living(name, f"o.time_to_live > {LONGEST_TIME_TO_LIVE}"),
    )
