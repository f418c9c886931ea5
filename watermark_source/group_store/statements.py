"""The one statement by which a member tells what it has come to and learns what the others have."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Row, Select, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.sql.expression import ColumnElement

from watermark_source.group_store.table import COMING, IDLE, MEMBERS, StoreClock

_KEY = ("group_name", "member")
_WHO = ("source", "max_drift", "time_to_live")
_REPORT = ("status", "watermark", "counts_with")
OWN = (*_KEY, "writer", *_WHO, *_REPORT)
"""Parameters of ``exchange``."""
_SILENT_FOR = 10
"""A row is removed when its member was silent for so many times its time-to-live."""
_UPSERTS: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def exchange(connection: Connection, own: dict[str, Any], *, tells: bool, takes_over: bool) -> Row[Any] | None:
    """Write a member's row, and return what is to be known of those that are elsewhere.

    One statement where the database can write and tell at once, up to three in a transaction elsewhere.

    Args:
        connection: in a transaction.
        own: the row.
        tells: whether it has anything to report; before, what the row says is left as it is.
        takes_over: whether the row may be another process's, as after a restart.

    Returns:
        The columns of ``_of_others``; ``None`` if the row is another process's, and nothing was written.
    """
    if connection.dialect.name in _UPSERTS:
        statement = _at_once(connection.dialect.name, tells=tells, takes_over=takes_over)
        return connection.execute(statement, own).one_or_none()
    here = [MEMBERS.c[name] == bindparam(f"own_{name}") for name in (*_KEY, *(() if takes_over else ("writer",)))]
    # Whatever else is named would be written too.
    changed = _changing(tells=tells)
    named = {name: own[name] for name in changed} | {f"own_{name}": own[name] for name in (*_KEY, "writer")}
    if not connection.execute(update(MEMBERS).where(*here).values(_values(changed)), named).rowcount:
        try:
            with connection.begin_nested():
                connection.execute(insert(MEMBERS).values(_values(OWN)), own)
        except IntegrityError:
            taken = select(MEMBERS.c.member).where(*here[: len(_KEY)])
            if connection.execute(taken, named).first() is None:
                raise
            return None
    return connection.execute(select(*_of_others()), own).one()


def leave(connection: Connection, group: str, member: str, writer: str) -> None:
    """Remove a member's row, if it is still its own, and those of members that have been silent for very long."""
    long_ago = StoreClock() - MEMBERS.c.seen > _SILENT_FOR * MEMBERS.c.time_to_live
    own = (MEMBERS.c.member == member) & (MEMBERS.c.writer == writer)
    connection.execute(delete(MEMBERS).where(MEMBERS.c.group_name == group, own | long_ago))


def writes_and_tells_at_once(dialect: Dialect) -> bool:
    """Return whether ``exchange`` is one statement."""
    return dialect.name in _UPSERTS


def other_drift(connection: Connection, group: str, member: str, max_drift: int, *, alive: bool) -> int | None:
    """Return the drift of an ``alive`` or silent member that has another one; ``None`` if there is none."""
    statement = _told(_OTHER.c.max_drift, alive=alive).where(_OTHER.c.max_drift != max_drift).limit(1)
    found: int | None = connection.execute(statement, {"group_name": group, "member": member}).scalar()
    return found


_OTHER = MEMBERS.alias("other")


@lru_cache
def _at_once(dialect: str, *, tells: bool, takes_over: bool) -> ReturningInsert[Any]:
    written = _UPSERTS[dialect](MEMBERS).values(_values(OWN))
    changed = {name: written.excluded[name] for name in (*_changing(tells=tells), "seen")}
    where = None if takes_over else MEMBERS.c.writer == written.excluded.writer
    statement = written.on_conflict_do_update(index_elements=list(_KEY), set_=changed, where=where)
    found: ReturningInsert[Any] = statement.returning(*_of_others())
    return found


def _changing(*, tells: bool) -> tuple[str, ...]:
    return ("writer", *_WHO, *(_REPORT if tells else ()))


def _values(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: bindparam(name) for name in names} | {"seen": StoreClock()}


def _told(*what: ColumnElement[Any], alive: bool = True) -> Select[Any]:
    """Return a question about the others that are alive, or about those that are silent."""
    # One that was heard of in the future was not: the clock was set back, and it is heard of again within a second.
    silent_for = func.abs(StoreClock() - _OTHER.c.seen)
    return select(*what).where(
        _OTHER.c.group_name == bindparam("group_name"),
        _OTHER.c.member != bindparam("member"),
        silent_for <= _OTHER.c.time_to_live if alive else silent_for > _OTHER.c.time_to_live,
    )


def _of_others() -> tuple[ColumnElement[Any], ...]:
    # Equal ones in one order, so that both are of one member; the index has it.
    in_order = (_OTHER.c.counts_with, _OTHER.c.source)

    def first(what: ColumnElement[Any]) -> ColumnElement[Any]:
        return _told(what).where(_OTHER.c.counts_with.is_not(None)).order_by(*in_order).limit(1).scalar_subquery()

    before_us = (_OTHER.c.member < bindparam("member"), _OTHER.c.max_drift.is_not(None))
    return (
        first(_OTHER.c.counts_with).label("minimum"),
        first(_OTHER.c.source).label("slowest"),
        _told(func.count()).where(_OTHER.c.status != COMING).scalar_subquery().label("members"),
        _told(func.count()).where(_OTHER.c.status == COMING).scalar_subquery().label("coming"),
        StoreClock().label("now"),
        # Of several that come at once with different drifts the first by name has the group's.
        _told(_OTHER.c.max_drift).where(*before_us).order_by(_OTHER.c.member).limit(1).scalar_subquery().label("drift"),
        _told(func.max(_OTHER.c.watermark)).where(_OTHER.c.status == IDLE).scalar_subquery().label("idle"),
    )
