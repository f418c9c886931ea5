"""Members that meet in a file of SQLite, and may not reach it for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from watermark_source.errors import UnreachableError
from watermark_source.group_store import store_waits
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import HeartbeatClient
from watermark_source.group_store.store import Answer, GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.watermark import Millis

Make = Callable[..., HeartbeatClient]


def at(watermark: int) -> GroupMember:
    return GroupMember(MemberStatus.ACTIVE, Millis(watermark))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(store_waits, "SILENT_AFTER", 0.5)
    made: list[HeartbeatClient] = []

    def one(name: str, *, drift: int | None = 1_000, folder: str = ".", time_to_live: int = 30_000) -> HeartbeatClient:
        store = GroupStore(database_of(f"sqlite:///{tmp_path / folder / 'alignment.sqlite'}"))
        made.append(HeartbeatClient(store, Identity("g", f"{name}-id", name, drift, time_to_live)))
        return made[-1]

    yield one
    for each in made:
        each.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def publish_first(member: HeartbeatClient, report: GroupMember) -> None:
    """Have a member join, and publish its first report."""
    member.others(None)
    member.publish(report, waits=False)


def two(make: Make, **how: Any) -> tuple[HeartbeatClient, HeartbeatClient]:
    """Make two members that have publish_first 10 and 50."""
    a, b = make("a", **how), make("b", **how)
    publish_first(a, at(10))
    publish_first(b, at(50))
    return a, b


def stay_away(monkeypatch: pytest.MonkeyPatch, *members: str) -> set[str]:
    """Let some members not reach the store, as long as they are in what is returned."""
    exchange, away = GroupStore.exchange, set(members)

    def unless_away(store: GroupStore, identity: Identity, report: GroupMember | None, **how: bool) -> Answer | None:
        if identity.member in away:
            raise UnreachableError("away")
        return exchange(store, identity, report, **how)

    monkeypatch.setattr(GroupStore, "exchange", unless_away)
    return away
