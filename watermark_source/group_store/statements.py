"""The one statement by which a member tells what it has come to and learns what the others have."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Dialect, Row, Select, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.expression import ColumnElement

from watermark_source.group_store.table import MEMBERS, StoreClock

OWN = ("group_name", "member", "source", "max_drift", "status", "watermark", "counts_with", "time_to_live")
"""Parameters of ``exchange``."""
_SILENT_FOR = 10
"""A row is removed when its member was silent for so many times its time-to-live."""
_UPSERTS: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def exchange(connection: Connection, own: dict[str, Any]) -> Row[Any]:
    """Write a member's row, and return minimum, slowest and number of those that are elsewhere.

    One statement where the database can write and tell at once, three in a transaction elsewhere.
    """
    upsert = _UPSERTS.get(connection.dialect.name)
    values: dict[str, Any] = {name: bindparam(name) for name in OWN} | {"seen": StoreClock()}
    if upsert is not None:
        written = upsert(MEMBERS).values(values)
        changed = {name: written.excluded[name] for name in (*OWN[2:], "seen")}
        statement = written.on_conflict_do_update(index_elements=list(OWN[:2]), set_=changed)
        return connection.execute(statement.returning(*_of_others()), own).one()
    here = (MEMBERS.c.group_name == bindparam("own_group"), MEMBERS.c.member == bindparam("own_member"))
    named = {**own, "own_group": own["group_name"], "own_member": own["member"]}
    if not connection.execute(update(MEMBERS).where(*here).values(values), named).rowcount:
        connection.execute(insert(MEMBERS).values(values), own)
    return connection.execute(select(*_of_others()), own).one()


def leave(connection: Connection, group: str, member: str) -> None:
    """Remove a member's row, and those of members that have been silent for very long."""
    long_ago = StoreClock() - MEMBERS.c.seen > _SILENT_FOR * MEMBERS.c.time_to_live
    own = MEMBERS.c.member == member
    connection.execute(delete(MEMBERS).where(MEMBERS.c.group_name == group, own | long_ago))


def writes_and_tells_at_once(dialect: Dialect) -> bool:
    """Return whether ``exchange`` is one statement."""
    return dialect.name in _UPSERTS


def other_drift(connection: Connection, group: str, member: str, max_drift: int) -> int | None:
    """Return the drift of a member that has another one; ``None`` if there is none."""
    statement = _told(_OTHER.c.max_drift).where(_OTHER.c.max_drift != max_drift).limit(1)
    found: int | None = connection.execute(statement, {"group_name": group, "member": member}).scalar()
    return found


_OTHER = MEMBERS.alias("other")


def _told(*what: ColumnElement[Any]) -> Select[Any]:
    """Return a question about the others that are alive."""
    alive = StoreClock() - _OTHER.c.seen <= _OTHER.c.time_to_live
    return select(*what).where(
        _OTHER.c.group_name == bindparam("group_name"), _OTHER.c.member != bindparam("member"), alive
    )


def _of_others() -> tuple[ColumnElement[Any], ...]:
    # Equal ones in one order, so that both are of one member; the index has it.
    in_order = (_OTHER.c.counts_with, _OTHER.c.source)

    def first(what: ColumnElement[Any]) -> ColumnElement[Any]:
        return _told(what).where(_OTHER.c.counts_with.is_not(None)).order_by(*in_order).limit(1).scalar_subquery()

    members = _told(func.count()).scalar_subquery()
    return first(_OTHER.c.counts_with).label("minimum"), first(_OTHER.c.source).label("slowest"), members
