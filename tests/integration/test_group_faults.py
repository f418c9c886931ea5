"""The store of a group goes away, its members freeze and die: the others continue by the rules, and nothing is lost."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil
import pytest
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console

from services.local_server import ChildProcess
from services.postgres import Postgres, postgres_service, url_of
from tests.integration import group_driver, reader_loop
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.kafka_streams import wait_for as wait_for_at_most
from tests.integration.reader_loop import lines
from watermark_source.group_store.store_waits import SILENT_AFTER
from watermark_source.monitor.terminal import watch
from watermark_source.planning.group import SILENT_FROM
from watermark_source.status_model.source_status import GroupStatus
from watermark_source.status_model.status_json import parse_progress

pytestmark = [pytest.mark.service, pytest.mark.spark, pytest.mark.timeout(600)]

_log = logging.getLogger(__name__)

NewTopic = Callable[..., str]
DRIFT = 50.0
SLOW, FAST = np.round(np.arange(0, 300, 0.2), 3), np.round(np.arange(0, 300, 0.02), 3)
TIME_TO_LIVE = 5
PATIENCE = 200
"""Seconds for another driver to start, on the slowest machine."""


def wait_for(condition: Callable[[], object], query: StreamingQuery) -> None:
    wait_for_at_most(condition, query, seconds=PATIENCE)


def options(store: str, **more: Any) -> dict[str, Any]:
    return {
        "alignmentGroup": "faults",
        "alignmentMaxDrift": "50 seconds",
        "alignmentStore": store,
        "alignmentTimeToLive": f"{TIME_TO_LIVE} seconds",
        "alignmentMembers": 2,
        **more,
    }


def allowed(slow_reached: float) -> int:
    """Return how many rows of the fast topic are within the drift of where the slow one ended."""
    return int(np.searchsorted(FAST, slow_reached + DRIFT + 1e-6))


@pytest.fixture
def often(streams: KafkaStreams) -> Iterator[None]:
    """Progress is reported while nothing happens, too."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    streams.spark.conf.set(name, "500")
    yield
    streams.spark.conf.unset(name)


def planned(checkpoint: Path) -> int:
    """Return how many rows of its only partition a query has planned to read, by the log of its offsets."""
    logged = [int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")]
    if not logged:
        return 0
    lines = (checkpoint / "offsets" / str(max(logged))).read_text().splitlines()
    ((_, numbers),) = json.loads(lines[2])["splits"].items()
    return int(numbers["0"][0])


def group_of(query: StreamingQuery) -> GroupStatus:
    group = parse_progress(query.lastProgress)[0].group
    assert group is not None
    return group


@pytest.mark.usefixtures("often")
@pytest.mark.long("test_a_broken_network_to_the_store_makes_no_member_believe_what_was_not_reported")
def test_while_the_store_is_away_no_source_reads_beyond_the_last_limit_and_then_all_continue(
    streams: KafkaStreams, new_topic: NewTopic, request: pytest.FixtureRequest
) -> None:
    slow, fast = new_topic(1), new_topic(1)
    streams.write(slow, {0: SLOW[:500]})
    streams.write(fast, {0: FAST})
    with postgres_service() as server:
        # Not so short that a slow machine ends it.
        patient = options(url_of(server), alignmentTimeToLive="30 seconds")
        queries = {
            name: streams.start_file(streams.source(subscribe=topic, sourceName=name, **patient), name)
            for name, topic in (("slow", slow), ("fast", fast))
        }
        before = allowed(SLOW[499])
        wait_for(lambda: planned(streams.checkpoint("fast")) == before, queries["fast"])
        server.kill()
        streams.write(slow, {0: SLOW[500:1_250]})
        for query in queries.values():
            wait_for(lambda query=query: group_of(query).trouble is not None, query)  # type: ignore[misc]
        away_until = time.monotonic() + request.config.getoption("--store-outage")
        # What the last answer allowed each, and nothing more; whether the slow one has heard where the fast one is
        # depends on when the store went, and when it plans what was written on the machine.
        most = int(np.searchsorted(SLOW, FAST[before - 1] + DRIFT + 1e-6))
        assert 500 < most < 1_250
        while time.monotonic() < away_until:
            assert 500 <= planned(streams.checkpoint("slow")) <= most
            assert planned(streams.checkpoint("fast")) == before
            time.sleep(0.5)
        assert "does not answer" in str(group_of(queries["fast"]).trouble)
        server.start()
        wait_for(lambda: planned(streams.checkpoint("fast")) == allowed(SLOW[1_249]), queries["fast"])
        # What is planned counts before it is written down.
        wait_for(lambda: planned(streams.checkpoint("slow")) == 1_250, queries["slow"])
        for query in queries.values():
            wait_for(lambda query=query: group_of(query).trouble is None, query)  # type: ignore[misc]
        # What is planned is not written yet.
        queries["slow"].processAllAvailable()
        queries["slow"].stop()
        wait_for(lambda: planned(streams.checkpoint("fast")) == len(FAST), queries["fast"])
        queries["fast"].processAllAvailable()
        assert [len(streams.data(name, ("partition", "offset"))) for name in queries] == [1_250, len(FAST)]


def is_runner(process: psutil.Process) -> bool:
    """Return whether it is a source's; one that has just ended is none."""
    try:
        return "python_streaming_source_runner" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


class OtherDriver:
    """A driver in a process of its own."""

    def __init__(self, folder: Path, given: dict[str, Any]) -> None:
        self.folder, self.given = folder, given
        self.process: ChildProcess | None = None

    def start(self, **more: Any) -> None:
        self.folder.mkdir(exist_ok=True)
        self.given |= more
        words = [f"{name}={value}" for name, value in self.given.items()]
        command = [sys.executable, group_driver.__file__, str(self.folder), *words]
        self.process = ChildProcess(command, folder=self.folder, log=self.folder.with_suffix(".log"), files=self.folder)

    def runner(self) -> psutil.Process:
        """Return the process of its source."""
        assert self.process is not None
        below = psutil.Process(self.process.pid).children(recursive=True)
        (found,) = filter(is_runner, below)
        return found

    def planned(self) -> int:
        return planned(group_driver.checkpoint_of(self.folder))

    def kill(self) -> None:
        """Kill -9 all of it at once."""
        if self.process is None:
            return
        below = []
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for each in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(below, timeout=90)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[..., OtherDriver]]:
    made: list[OtherDriver] = []

    def make(**given: Any) -> OtherDriver:
        made.append(OtherDriver(tmp_path / f"driver-{len(made)}", given))
        return made[-1]

    yield make
    for driver in made:
        driver.kill()


@pytest.mark.long("test_a_query_waits_for_another_that_is_stopped_until_it_has_left")
def test_a_driver_that_is_silent_is_waited_for_for_its_time_and_counts_again_when_it_speaks(
    streams: KafkaStreams, new_topic: NewTopic, postgres: Postgres, elsewhere: Callable[..., OtherDriver]
) -> None:
    slow, fast = new_topic(1), new_topic(1)
    streams.write(slow, {0: SLOW[:500]})
    streams.write(fast, {0: FAST[:7_500]})
    store = url_of(postgres)
    kafka = {"kafka.bootstrap.servers": streams.bootstrap, "startingOffsets": "earliest"}
    other = elsewhere(**kafka, subscribe=slow, sourceName="slow", **options(store))
    other.start()
    query = streams.start_file(streams.source(subscribe=fast, sourceName="fast", **options(store)), "fast")
    wait_for(lambda: planned(streams.checkpoint("fast")) == allowed(SLOW[499]), query)

    # Frozen: after its time the other continues to the end of its log.
    runner = other.runner()
    begun = time.monotonic()
    runner.suspend()
    wait_for(lambda: planned(streams.checkpoint("fast")) == 7_500, query)
    assert time.monotonic() - begun > TIME_TO_LIVE / 2
    # What was reported last may be older than what is planned.
    wait_for(lambda: group_of(query).others == 0, query)

    # It speaks again, and is behind: what the other gets now has to wait for it.
    runner.resume()
    wait_for(lambda: group_of(query).others == 1, query)
    streams.write(fast, {0: FAST[7_500:]})
    time.sleep(2)
    assert planned(streams.checkpoint("fast")) == 7_500
    streams.write(slow, {0: SLOW[500:1_000]})
    wait_for(lambda: planned(streams.checkpoint("fast")) == allowed(SLOW[999]), query)

    # Killed: the same, and when it is started again it continues where it was.
    begun = time.monotonic()
    other.kill()
    streams.write(slow, {0: SLOW[1_000:]})
    wait_for(lambda: planned(streams.checkpoint("fast")) == len(FAST), query)
    assert time.monotonic() - begun > TIME_TO_LIVE / 2
    other.start()

    wait_for(lambda: planned(group_driver.checkpoint_of(other.folder)) == len(SLOW), query)
    sink = str(group_driver.sink_of(other.folder))
    wait_for(lambda: streams.spark.read.parquet(sink).distinct().count() == len(SLOW), query)
    assert streams.spark.read.parquet(sink).count() == len(SLOW)
    query.processAllAvailable()
    assert len(streams.data("fast", ("partition", "offset"))) == len(FAST)


# Sources of three drivers: in a driver each, or as the process that plans alone, called as Spark calls it.


class SourceProcess:
    """A source's own process, over and over from one folder."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, given: dict[str, Any]) -> None:
        self.folder, self.bootstrap, self.topic, self.given = folder, bootstrap, topic, given
        self.process: ChildProcess | None = None

    def start(self, **more: Any) -> None:
        self.folder.mkdir(exist_ok=True)
        self.given |= more
        words = [self.bootstrap, self.topic, str(self.folder), json.dumps(self.given)]
        command = [sys.executable, reader_loop.__file__, *words]
        self.process = ChildProcess(command, folder=self.folder, log=self.folder.with_suffix(".log"), files=self.folder)

    def stop(self) -> None:
        """End it as Spark ends the process of a query that is stopped."""
        assert self.process is not None
        self.process.stop(seconds=PATIENCE)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def runner(self) -> psutil.Process:
        assert self.process is not None
        return psutil.Process(self.process.pid)

    def planned(self) -> int:
        offsets = lines(self.folder / "offsets")
        ((_, numbers),) = offsets[-1]["splits"].items() if offsets else [("", {"0": [0]})]
        return int(numbers["0"][0])


def group_in(folder: Path) -> dict[str, Any]:
    """Return what a source showed last of its group."""
    known = lines(folder / "groups")
    return (known[-1]["group"] if known else None) or {}


@pytest.mark.parametrize("in_spark", [True, False], ids=["drivers", "processes that plan"])
@pytest.mark.long("test_a_lower_drift_of_one_member_reaches_the_others_and_ends_when_it_leaves")
def test_a_lower_drift_of_one_restarted_source_is_in_force_in_the_others_while_they_run(
    streams: KafkaStreams,
    new_topic: NewTopic,
    postgres: Postgres,
    tmp_path: Path,
    elsewhere: Callable[..., OtherDriver],
    in_spark: bool,
) -> None:
    topics = {name: new_topic(1) for name in ("slow", "fast", "other")}
    store = {
        # Those that were killed count for their time to live.
        "alignmentGroup": f"changed {in_spark}",
        "alignmentStore": url_of(postgres),
        "alignmentMaxDrift": "10 minutes",
        "alignmentMembers": "3",
        # For a machine that is slow to start a source again.
        "alignmentTimeToLive": "10 minutes",
    }
    kafka = {"kafka.bootstrap.servers": streams.bootstrap, "startingOffsets": "earliest"}
    members: dict[str, OtherDriver | SourceProcess] = {
        name: elsewhere(**kafka, **store, subscribe=topic, sourceName=name)
        if in_spark
        else SourceProcess(tmp_path / name, streams.bootstrap, topic, {"sourceName": name, **store})
        for name, topic in topics.items()
    }
    try:
        change_the_drift(streams, topics, **members)
    finally:
        for each in members.values():
            each.kill()


def change_the_drift(
    streams: KafkaStreams,
    topics: dict[str, str],
    slow: OtherDriver | SourceProcess,
    fast: OtherDriver | SourceProcess,
    other: OtherDriver | SourceProcess,
) -> None:
    seconds = np.arange(0.0, 3_000.0)
    streams.write(topics["slow"], {0: seconds[:101]})
    for name in ("fast", "other"):
        streams.write(topics[name], {0: seconds})
    for each in (slow, fast, other):
        each.start()

    def until(condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, [group_in(each.folder) for each in (slow, fast, other)]
            time.sleep(0.05)

    # Up to the last of the slow one, at 100 s, and the drift.
    until(lambda: fast.planned() == other.planned() == 701)
    until(lambda: [group_in(each.folder).get("maxDrift") for each in (slow, fast, other)] == [600_000] * 3)
    running = [each.process for each in (fast, other)]
    slow.kill()
    begun = time.time()
    slow.start(alignmentMaxDrift="1 minute")
    until(lambda: group_in(fast.folder).get("maxDriftOf") == group_in(other.folder).get("maxDriftOf") == "slow")
    until(lambda: group_in(slow.folder).get("maxDrift") == 60_000)
    took = [
        next(line["at"] for line in lines(each.folder / "groups") if (line["group"] or {}).get("maxDrift") == 60_000)
        - begun
        for each in (slow, fast, other)
    ]
    _log.info("planned with the new drift after %s s: the restarted source, and the others", took)
    for each in (fast, other):
        assert (group_in(each.folder)["maxDrift"], group_in(each.folder)["ownMaxDrift"]) == (60_000, 600_000)
    # By the old drift they would go to 1400 s.
    streams.write(topics["slow"], {0: seconds[101:801]})
    until(lambda: fast.planned() == other.planned() == 861)
    # And a higher one again.
    slow.kill()
    slow.start(alignmentMaxDrift="10 minutes")
    until(lambda: fast.planned() == other.planned() == 1_401)
    assert [each.process for each in (fast, other)] == running
    assert all(each.process is not None and each.process.exit_code is None for each in (slow, fast, other))

    # One is frozen: the others name it, and wait for it. What it reported last is in force.
    def named(source: OtherDriver | SourceProcess) -> bool:
        peers = group_in(source.folder).get("peers", {}).values()
        return any(peer["name"] == "slow" and peer["silent"] >= SILENT_FROM for peer in peers)

    until(lambda: not named(fast) and not named(other))
    frozen = slow.runner()
    begun = time.time()
    frozen.suspend()
    until(lambda: named(fast) and named(other))
    took = [lines(each.folder / "groups")[-1]["at"] - begun for each in (fast, other)]
    _log.info("named the frozen source after %s s at the latest", took)
    assert all(p["waited"] for p in group_in(fast.folder)["peers"].values())
    frozen.resume()
    until(lambda: not named(fast) and not named(other))


@pytest.mark.long("test_a_drift_that_one_member_was_restarted_with_is_in_force_in_all_within_two_heartbeats")
def test_nobody_goes_further_ahead_than_the_drift_while_the_slowest_is_started_with_other_options(
    streams: KafkaStreams, new_topic: NewTopic, postgres: Postgres, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each of three is the process that plans a query of its own, called as Spark calls it."""
    restarts, part, wider = request.config.getoption("--group-restarts"), 40, 60
    seconds = np.arange(0.0, (restarts + 2) * part + 2 * wider)
    store = {
        "alignmentGroup": "restarts", "alignmentStore": url_of(postgres), "alignmentMembers": "3",
        # For a machine that is slow to start a source again.
        "alignmentTimeToLive": "10 minutes",
    }  # fmt: skip

    def member(name: str) -> SourceProcess:
        given = {"sourceName": name, "alignmentMaxDrift": f"{wider} seconds", **store}
        return SourceProcess(tmp_path / name, streams.bootstrap, new_topic(1), given)

    slow, fast, other = members = [member(name) for name in ("slow", "fast", "other")]
    most = 0

    def go_on(until_second: int, drift: int) -> None:
        """Write to the slowest up to a second, and wait until the others are as far as they may."""
        nonlocal most
        streams.write(slow.topic, {0: seconds[max(0, until_second - part) : until_second]})
        # Rows up to the drift behind its last one; whoever is further ahead by an earlier drift waits.
        most = max(most, until_second + drift)
        end = time.monotonic() + PATIENCE
        while not fast.planned() == other.planned() == most:
            assert max(fast.planned(), other.planned()) <= most
            assert time.monotonic() < end, [group_in(each.folder) for each in members]
            time.sleep(0.05)

    for each in (fast, other):
        streams.write(each.topic, {0: seconds})
    try:
        for each in members:
            each.start()
        go_on(part, wider)
        running = [each.process for each in (fast, other)]
        for number in range(1, restarts + 1):
            drift = wider // (1 + number % 2)
            slow.stop()
            slow.start(alignmentMaxDrift=f"{drift} seconds", maxOffsetsPerTrigger=str(5 + number % 7))
            # A wider one lets them go on.
            most = max(most, number * part + drift)
            end = time.monotonic() + PATIENCE
            while any(group_in(each.folder).get("maxDrift") != 1_000 * drift for each in members):
                assert max(fast.planned(), other.planned()) <= most
                assert time.monotonic() < end, [group_in(each.folder) for each in members]
                time.sleep(0.05)
            go_on((number + 1) * part, drift)
        assert [each.process for each in (fast, other)] == running
        assert all(each.process is not None and each.process.exit_code is None for each in members)
    finally:
        for each in members:
            each.kill()


# What page, command and metric show of a source that is frozen, of one driver and of three.


def is_shown(at: list[str], words: str, metric: str) -> bool:
    """Return whether page and command have these words, and the metric, a pattern for its labels too, a value."""
    page, metrics = at
    with urlopen(page) as answer:
        # There it is a sentence of its own.
        on_page = words.casefold() in answer.read().decode().casefold()
    console = Console(width=400, record=True, file=io.StringIO())
    watch(page, console)
    with urlopen(metrics) as answer:
        (value,) = re.findall(rf"{metric} (\S+)", answer.read().decode()) or ("0",)
    return on_page and words in console.export_text() and float(value) >= SILENT_FROM / 1_000


def is_named(name: str, at: list[str]) -> bool:
    metric = rf'alignment_peer_silence_seconds{{[^}}]*peer="{name}"[^}}]*}}'
    return is_shown(at, f"source {name} of the alignment group faults has reported nothing for ", metric)


def names_itself(at: list[str]) -> bool:
    return is_shown(at, "this source itself reported nothing ", "alignment_own_silence_seconds{[^}]*}")


def seconds_until(condition: Callable[[], object]) -> float:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.02)
    return time.monotonic() - begun


def test_a_frozen_source_is_named_by_the_page_the_command_and_the_metric_until_it_reports_again(
    streams: KafkaStreams, new_topic: NewTopic, postgres: Postgres, tmp_path: Path
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: SLOW[:500]})
    # Not so short that a slow machine ends it.
    store = options(url_of(postgres), alignmentTimeToLive="10 minutes")
    words = {name: str(value) for name, value in {**store, "sourceName": "frozen"}.items()}
    frozen = SourceProcess(tmp_path / "frozen", streams.bootstrap, topic, words)
    with group_driver.shown(streams.spark) as at:
        frozen.start()
        try:
            query = streams.start_file(streams.source(subscribe=topic, sourceName="other", **store), "other")
            wait_for(lambda: planned(streams.checkpoint("other")) == 500, query)
            wait_for(lambda: not is_named("frozen", at), query)
            frozen.runner().suspend()
            took = seconds_until(lambda: is_named("frozen", at))
            _log.info("named after %.2f s, while nothing is read", took)
            # So long that it counts as an own silence.
            time.sleep(SILENT_AFTER)
            frozen.runner().resume()
            noted = frozen.folder / "groups"
            wait_for(lambda: any("ownSilence" in (line["group"] or {}) for line in lines(noted)), query)
            wait_for(lambda: not is_named("frozen", at), query)
        finally:
            frozen.kill()


@pytest.mark.long("test_a_frozen_source_is_named_by_the_page_the_command_and_the_metric_until_it_reports_again")
def test_of_three_drivers_one_that_is_frozen_for_a_minute_is_named_by_both_others_within_two_seconds(
    streams: KafkaStreams, new_topic: NewTopic, postgres: Postgres, elsewhere: Callable[..., OtherDriver]
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: SLOW[:500]})
    kafka = {"kafka.bootstrap.servers": streams.bootstrap, "startingOffsets": "earliest", "subscribe": topic}
    store = options(url_of(postgres), alignmentTimeToLive="30 seconds", alignmentMembers=3)
    drivers = [elsewhere(**kafka, **store, sourceName=name) for name in ("frozen", "second", "third")]
    for driver in drivers:
        driver.start()
    seconds_until(lambda: all(driver.folder.joinpath("addresses").exists() for driver in drivers))
    seconds_until(lambda: all(driver.planned() == 500 for driver in drivers))
    of_frozen, *others = (group_driver.addresses_of(driver.folder) for driver in drivers)
    assert drivers[0].process is not None
    driver = psutil.Process(drivers[0].process.pid)
    whole = [driver, *driver.children(recursive=True)]
    took = []
    for lasts in (0, 0, 0, 60):
        seconds_until(lambda: not any(is_named("frozen", at) for at in others))
        begun = time.monotonic()
        for each in whole:
            each.suspend()
        for at in others:
            seconds_until(lambda at=at: is_named("frozen", at))  # type: ignore[misc]
        took.append(time.monotonic() - begun)
        time.sleep(max(0.0, lasts - took[-1]))
        # Beyond its time to live it is named, too.
        assert all(is_named("frozen", at) for at in others)
        for each in whole:
            each.resume()
    _log.info("both others named the frozen driver after %s s", took)
    assert min(took) < 2
    _log.info("it named its own silence after %.2f s", seconds_until(lambda: names_itself(of_frozen)))
