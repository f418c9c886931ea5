"""A group whose members are sources of their own, which meet in a store: the same vectors as of one source's splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, update

from tests.transcripts.grammar import Driver, named
from watermark_source.group_store.database import database_of
from watermark_source.group_store.server_database import MEMBERS
from watermark_source.group_store.store import Answer, GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus, OtherMembers, counts_with, drift_in_force, limit
from watermark_source.planning.watermark import Millis

TIME_TO_LIVE = 30_000


class StoreDriver(Driver):
    """Each member reports to the store; then all that are there ask, and compute their limit."""

    def __init__(self, groups: dict[str, dict[str, Any]], folder: Path) -> None:
        super().__init__()
        self.url = f"sqlite:///{folder / 'alignment.sqlite'}"
        self.store = GroupStore(database_of(self.url))
        self.groups = groups
        self.reports: dict[str, GroupMember] = {}
        self.drifts: dict[str, int] = {}
        """Of members that have another one than their group began with."""
        self.gone: set[str] = set()
        self.silent: set[str] = set()

    def _group(self, member: str) -> str:
        return next(name for name, spec in self.groups.items() if member.split(".", maxsplit=1)[0] in spec["sources"])

    def _identity(self, member: str) -> Identity:
        group = self._group(member)
        drift = self.drifts.get(member, self.groups[group]["drift"])
        return Identity(group, f"{member}-id", member, drift, TIME_TO_LIVE)

    def _asked(self, member: str) -> Answer:
        found = self.store.exchange(self._identity(member), self.reports[member])
        assert found is not None
        return found

    def do_drift(self, argument: tuple[str, int]) -> list[str]:
        """A member starts again with another drift."""
        member, drift = argument
        self.drifts[member] = drift
        self._asked(member)
        return self.do_announce(self._group(member))

    def do_report(self, argument: tuple[str, Millis | str]) -> list[str]:
        member, value = argument
        before = self.reports.setdefault(member, GroupMember())
        if value == "failed":
            self.silent.add(member)
            self._silence(member)
            return self.do_announce(self._group(member))
        self.silent.discard(member)
        if isinstance(value, str):
            self.reports[member] = GroupMember(MemberStatus(value), before.watermark)
        else:
            self.reports[member] = GroupMember(MemberStatus.ACTIVE, value)
        self._asked(member)
        return self.do_announce(self._group(member))

    def do_no_more_splits(self, member: str) -> list[str]:
        assert member in self.reports
        return []

    def do_gone(self, member: str) -> list[str]:
        self.store.leave(self._identity(member))
        self.gone.add(member)
        return []

    def do_announce(self, name: str) -> list[str]:
        there = sorted(member for member in self.reports.keys() - self.gone if self._group(member) == name)
        return [f"{member} {named(self._limit(member))}" for member in there]

    def _limit(self, member: str) -> Millis:
        report = self.reports[member]
        if member in self.silent:
            # It does not ask; what it would learn when it does.
            return self._limit(next(m for m in self.reports if m not in self.silent))
        answer, own = self._asked(member), self._identity(member).max_drift
        found = [w for w in (counts_with(report), answer.minimum) if w is not None]
        drift = drift_in_force(own, OtherMembers(drift=answer.drift))
        assert drift is not None
        return limit(min(found, default=None), drift)

    def _silence(self, member: str) -> None:
        """Nothing was heard of it for longer than its time to live."""
        engine = create_engine(self.url)
        with engine.begin() as connection:
            row = MEMBERS.c.source == member
            connection.execute(update(MEMBERS).where(row).values(seen=MEMBERS.c.seen - 2 * TIME_TO_LIVE))
        engine.dispose()

    def see_slowest(self) -> dict[str, str | None]:
        def slowest(group: str) -> str | None:
            looking = Identity(group, "nobody", "nobody", None, TIME_TO_LIVE)
            found = self.store.exchange(looking, GroupMember(MemberStatus.CLOCK))
            assert found is not None
            return found.slowest

        return {name: slowest(name) for name in self.groups}

    def see_held_back(self) -> list[str]:
        return sorted(m for m, r in self.reports.items() if (at := counts_with(r)) is not None and at > self._limit(m))


class StoreAggregatorDriver(Driver):
    """Each key is a source; the lowest of the latest values is what its own is beside those of the others."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.store = GroupStore(database_of(f"sqlite:///{folder / 'alignment.sqlite'}"))
        self.minimum: int | None = None

    def do_report(self, argument: tuple[int, Millis]) -> list[str]:
        key, value = argument
        identity = Identity("g", f"{key}-id", str(key), 0, TIME_TO_LIVE)
        found = self.store.exchange(identity, GroupMember(MemberStatus.ACTIVE, value))
        assert found is not None
        before, self.minimum = self.minimum, value if found.minimum is None else min(value, found.minimum)
        return [named(self.minimum), "changed"] if self.minimum != before else [named(self.minimum)]

    def see_minimum(self) -> int | None:
        found = self.store.exchange(Identity("g", "nobody", "nobody", None, TIME_TO_LIVE), GroupMember())
        assert found is not None
        return found.minimum
