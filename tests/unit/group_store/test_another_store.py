"""A store of another package is one class: the scheme of ``alignmentStore`` finds it, and a group works over it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from tests.spark.file_log import TABLE
from watermark_source.errors import OptionError
from watermark_source.group_store.database import STORES, store_of
from watermark_source.group_store.heartbeat_client import HeartbeatClient
from watermark_source.group_store.store import Answer, GroupStore, Identity, MemberRow, Store
from watermark_source.planning.group import GroupMember, MemberStatus, counts_with
from watermark_source.planning.state import GroupState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.options import EngineOptions


class Kept(NamedTuple):
    identity: Identity
    report: GroupMember | None
    seen: float


class MemoryStore(Store):
    """The rows of all groups in this process, by the host of ``memory://host``."""

    hosts: ClassVar[dict[str, dict[tuple[str, str], Kept]]] = {}

    def __init__(self, url: str) -> None:
        host = url.removeprefix("memory://")
        if not host:
            raise OptionError("alignmentStore", url, "must name a host", example="memory://here")
        self._rows = self.hosts.setdefault(host, {})
        self.host = host

    @property
    def location(self) -> str:
        return f"memory {self.host}"

    def exchange(self, identity: Identity, report: GroupMember | None, *, takes_over: bool = True) -> Answer | None:
        own = self._rows.get((identity.group, identity.member))
        if own is not None and own.identity.writer != identity.writer and not takes_over:
            return None
        last = None if own is None else own.report
        self._rows[identity.group, identity.member] = Kept(identity, report or last, time.time())
        others = self._others(identity)
        reports = {kept.identity.source: kept.report for kept in others if kept.report is not None}
        counted = {source: at for source, each in reports.items() if (at := counts_with(each)) is not None}
        slowest = min(counted, key=lambda source: counted[source], default=None)
        idle = [each.watermark for each in reports.values() if each.status is MemberStatus.IDLE and each.watermark]
        drifts = [(each.max_drift, each.source) for each, *_ in others if each.max_drift is not None]
        drift, drift_of = min(drifts, default=(None, None))
        return Answer(
            minimum=None if slowest is None else counted[slowest],
            slowest=slowest,
            members=len(reports),
            coming=len(others) - len(reports),
            now=Millis(int(time.time() * 1_000)),
            drift=drift,
            drift_of=drift_of,
            idle=max(idle, default=None),
        )

    def members(self, identity: Identity) -> list[MemberRow]:
        now = time.time()
        return [
            MemberRow(
                kept.identity.source,
                "coming" if kept.report is None else kept.report.status.value,
                None if kept.report is None else kept.report.watermark,
                kept.identity.time_to_live,
                int(1_000 * (now - kept.seen)),
            )
            for kept in self._others(identity)
        ]

    def leave(self, identity: Identity) -> None:
        self._rows.pop((identity.group, identity.member), None)

    def close(self) -> None: ...

    def _others(self, identity: Identity) -> list[Kept]:
        def is_other(kept: Kept) -> bool:
            other, now = kept.identity, time.time()
            is_alive = now - kept.seen <= other.time_to_live / 1_000
            return other.group == identity.group and other.member != identity.member and is_alive

        return [kept for kept in self._rows.values() if is_other(kept)]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that adds the store, as pip would install it."""
    distribution = tmp_path / "memory_store-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: memory-store\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(f"[{STORES}]\nmemory = {__name__}:MemoryStore\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(MemoryStore, "hosts", {})


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_scheme_of_a_url_finds_the_store_of_a_package(tmp_path: Path) -> None:
    assert store_of("memory://here").location == "memory here"
    assert isinstance(store_of(f"sqlite:///{tmp_path / 'alignment.sqlite'}"), GroupStore)
    with pytest.raises(OptionError, match='alignmentStore = "memory://": must name a host'):
        TABLE.parse({"alignmentStore": "memory://"})


def test_members_of_a_group_wait_for_the_slowest_over_a_store_of_another_package() -> None:
    with ExitStack() as stack:
        fast, slow = (
            stack.enter_context(
                closing(HeartbeatClient(store_of("memory://here"), Identity("g", name, name, 1, 30_000)))
            )
            for name in ("fast", "slow")
        )
        for client, watermark in ((fast, 90), (slow, 10)):
            client.others(None)
            client.publish(GroupMember(MemberStatus.ACTIVE, Millis(watermark)), waits=True)
        until(lambda: fast.others(None).ceiling is None)
        others = fast.others(None)
        assert (others.minimum, str(others.slowest), others.members) == (10, "slow", 1)
        assert fast.location == "memory here"
        slow.publish(GroupMember(MemberStatus.FINISHED), waits=False)
    # One that is stopped stays, to be waited for.
    assert [name for _, name in MemoryStore.hosts["here"]] == ["fast"]


def test_a_source_joins_its_group_in_the_store_that_its_options_name() -> None:
    given = {"alignmentGroup": "g", "alignmentMaxDrift": "1 minute", "alignmentStore": "memory://here"}
    options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
    with closing(Membership(options)) as member:
        member.others(GroupState(member="known"))
        assert [kept.identity.member for kept in MemoryStore.hosts["here"].values()] == ["known"]
        other = Membership(
            EngineOptions.of(
                TABLE.parse({**given, "alignmentMaxDrift": "2 minutes"}), format_name="file-log", given=given
            )
        )
        with closing(other):
            until(lambda: other.others(GroupState()).drift == 60_000)
