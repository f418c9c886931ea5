"""A source's membership: what it may read before it knows who else is there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.file_log import TABLE
from tests.spark.queries import write
from tests.unit.spark.runner_process import TWO, Process
from watermark_source.errors import UsageError
from watermark_source.group_store import store_waits
from watermark_source.group_store.database import database_of
from watermark_source.group_store.file_database import FileDatabase
from watermark_source.group_store.local_members import FILE, driver_folder
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.planner import Plan, plan
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.state import GroupState, SourceState
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.options import EngineOptions

Make = Callable[..., Membership]
NOTHING = plan(
    SourceState(),
    Observation(now=Millis(0), logs=ObservedLogs(asked_at=Millis(0), ends={})),
    PlanPolicy(alignment=Alignment(max_drift=1)),
    None,
)


def planned() -> Plan:
    """A plan of a source that has nothing to read."""
    return NOTHING


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store' / 'alignment.sqlite'}"


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Membership] = []

    def one(time_to_live: int = 30_000, **more: str) -> Membership:
        given = {"alignmentGroup": "g", "alignmentMaxDrift": "1 minute", **more}
        options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
        assert options.group is not None
        made.append(Membership(replace(options, group=replace(options.group, time_to_live=time_to_live))))
        return made[-1]

    yield one
    for each in made:
        each.close()


@pytest.mark.parametrize("limit", [None, MAX])
def test_a_process_that_starts_reads_nothing_before_it_knows_who_counts_though_no_one_did_when_the_last_ended(
    make: Make, url: str, tmp_path: Path, limit: Millis | None
) -> None:
    """All were idle when they were stopped, and began again together, each with a backlog."""
    (tmp_path / "store").mkdir()
    source = make(alignmentStore=url)
    state = GroupState(member="known", limit=limit)
    known = source.others(state)
    assert (known.ceiling, known.awaited, known.hold) == (MIN, True, True)
    source.publish(planned())
    until(lambda: source.others(state).ceiling is None)


def test_the_time_in_which_others_are_to_come_again_does_not_pass_while_the_store_is_away(
    make: Make, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_waits, "FIRST_ANSWER", 0.1)
    monkeypatch.setattr(store_waits, "LATE_SETTLING", 0.1)
    source = make(1_500, alignmentStore=url, alignmentMembers="2")
    state = GroupState(member="known", limit=Millis(70))
    source.others(state)
    source.publish(planned())
    away_until = time.monotonic() + 2
    while time.monotonic() < away_until:
        assert source.others(state).ceiling == 70
        time.sleep(0.05)
    (tmp_path / "store").mkdir()
    until(lambda: source.trouble is None)
    for _ in range(3):
        assert source.others(state).ceiling == 70
        time.sleep(0.05)
    other = GroupStore(database_of(url))
    other.exchange(Identity("g", "other", "other", 60_000, 60_000), GroupMember(MemberStatus.ACTIVE, Millis(10)))
    until(lambda: source.others(state).ceiling is None)
    assert source.others(state).minimum == 10
    other.close()


def test_who_is_alone_comes_again_when_somebody_has_removed_the_folder(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what cleans temporary folders does with files that are old."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    source = make()
    source.register()
    assert source.others(GroupState()).members == 0
    for gone in (tmp_path / "local" / "watermark-source", tmp_path / "local"):
        shutil.rmtree(gone)
        assert source.others(GroupState()).members == 0
        # Those that come later see it.
        (group,) = driver_folder().iterdir()
        assert len(list(group.iterdir())) == 1


def test_sources_that_meet_in_a_database_need_no_folder_of_their_driver(
    make: Make, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is not private, or cannot be written to."""
    (tmp_path / "store").mkdir()
    (tmp_path / "watermark-source").mkdir()
    (tmp_path / "watermark-source").chmod(0o755)
    (tmp_path / "file").touch()
    for folder, text in ((tmp_path, "is not private"), (tmp_path / "file", "Not a directory")):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
        caplog.clear()
        source = make(alignmentStore=url)
        for _ in range(2):
            source.register()
            source.others(GroupState(), "a run")
            source.publish(planned())
        (line,) = (line for line in caplog.messages if "do not plan as one" in line)
        assert text in line
        with pytest.raises((UsageError, OSError)):
            make().register()


def test_where_the_sources_meet_and_what_is_wrong_there_is_reported_without_what_is_secret(
    make: Make, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_waits, "FIRST_ANSWER", 0.1)
    source = make(alignmentStore=url)
    source.others(GroupState())
    until(lambda: "unable to open database file" in str(source.trouble))
    assert source.place == f"sqlite /{tmp_path / 'store' / 'alignment.sqlite'}"
    server = make(alignmentStore="postgresql+psycopg://user:4711@127.0.0.1:9/none")
    server.others(GroupState())
    until(lambda: server.trouble is not None and "4711" not in f"{server.place} {server.trouble}")
    assert (make().place, make(alignmentStore="none").place) == ("driver", "none")


def test_a_source_that_met_its_group_in_this_process_goes_on_without_the_store_as_the_next_process_does(
    log: Path, live: Any, url: str, tmp_path: Path
) -> None:
    """No one counted when the store went away: there was no limit, and there is none now."""
    (tmp_path / "store").mkdir()
    write(log, TWO)
    group = {"alignmentGroup": "g", "alignmentMaxDrift": "1 minute", "alignmentStore": url, "idleTimeout": "1 ms"}
    process = live(**group)
    end = process.runner.initial_offset()

    def advance() -> bool:
        nonlocal end
        end = process.run(end)
        return True

    until(lambda: advance() and "member" in end and [f[3:4] for f in end["splits"]["log"].values()] == [["i"]] * 2)
    shutil.rmtree(tmp_path / "store")
    until(lambda: process.runner._membership.trouble is not None)
    write(log, {0: [(200, 9)]})
    until(lambda: advance() and end["splits"]["log"]["0"][0] == 3, seconds=20)


def test_whose_drift_is_in_force_is_logged_each_time_that_it_changes(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'alignment.sqlite'}"
    lowest = {"alignmentMaxDrift": "5 seconds", "sourceName": "low"}
    source, low = make(alignmentStore=url), make(1_000, alignmentStore=url, **lowest)

    def drift_is(value: int) -> bool:
        return source.others(GroupState(member="known")).drift == value

    source.others(GroupState(member="known"))
    low.others(GroupState(member="low"))
    until(lambda: drift_is(5_000))
    low.close()
    until(lambda: source.others(GroupState(member="known")).drift is None)
    lower, again = (line for line in caplog.messages if "max drift" in line)
    assert "g is 5 s, that of low, which is the lowest of its members; this source has alignmentMaxDrift 1 min" in lower
    assert again.endswith("g is 1 min again, that of this source")


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.long("the same of three rounds"))])
def test_a_source_that_is_stopped_and_started_with_another_option_is_waited_for(rounds: int, tmp_path: Path) -> None:
    """Three sources of one group in a store that drivers share; the slowest starts again and again."""
    drift = 60
    written = {"slow": 10, "fast": 7_200, "other": 7_200}
    for name, seconds in written.items():
        write(tmp_path / name, {0: [(second, second) for second in range(seconds)]})
    options = {
        "alignmentGroup": "g", "alignmentStore": f"sqlite:///{tmp_path / 'alignment.sqlite'}",
        "alignmentMaxDrift": f"{drift} seconds", "alignmentMembers": "3", "watermarkStrategy": "monotonous",
    }  # fmt: skip

    def start(name: str, **more: str) -> Process:
        return Process(tmp_path / name, **options, sourceName=name, **more)

    sources = {name: start(name) for name in written}
    ends: dict[str, Mapping[str, Any]] = {name: each.runner.initial_offset() for name, each in sources.items()}

    def read(name: str) -> int:
        return int(ends[name]["splits"].get("log", {"0": [0]})["0"][0])

    def advance() -> None:
        for name, each in sources.items():
            ends[name] = each.run(ends[name])
            assert read(name) <= written["slow"] + drift + 1, (name, read("slow"))

    def all_it_may() -> bool:
        advance()
        return read("slow") == written["slow"] and read("fast") == read("other") >= written["slow"] + drift - 1

    try:
        until(all_it_may)
        for number in range(rounds):
            sources["slow"].runner.close()
            for _ in range(10):
                for name in ("fast", "other"):
                    ends[name] = sources[name].run(ends[name])
                    assert read(name) <= written["slow"] + drift + 1, number
            sources["slow"] = start("slow", maxRowsPerTrigger=str(5 + number))
            write(tmp_path / "slow", {0: [(second, second) for second in range(written["slow"], written["slow"] + 5)]})
            written["slow"] += 5
            until(all_it_may)
    finally:
        for each in sources.values():
            each.runner.close()


def test_sources_of_one_driver_that_had_met_wait_for_those_that_are_stopped_though_no_one_else_is_there(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All queries are stopped, and one is started before the others."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    other = GroupStore(FileDatabase(str(driver_folder() / FILE)))
    other.exchange(Identity("g", "other", "other", 60_000, 60_000), GroupMember(MemberStatus.ACTIVE, Millis(10)))
    other.close()
    source, state = make(), GroupState(member="known", limit=Millis(70))
    assert source.others(state).ceiling == 70
    source.publish(planned())
    until(lambda: source.others(state).minimum == 10)
    # One that never met another is alone.
    assert make().others(GroupState()).members == 0
