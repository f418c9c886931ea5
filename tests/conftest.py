"""What all tests share: the real broker, the local Spark session, and the choice to leave services out."""

from __future__ import annotations

import fcntl
import gc
import operator
import os
import random
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from services.containers import WHERE_VARIABLE, Where
from services.ivy import spark_kafka_jars
from services.kafka import Kafka
from services.kafka_topics import create_topic
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour, flavour_from_environment
from services.postgres import Postgres, postgres_service
from services.spark_python import quick_python
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark
from tests import most_memory
from tests.broker_of_run import broker_of_run, pytest_configure_node, pytest_unconfigure  # noqa: F401 - two are hooks
from tests.first_imports import pytest_collection  # noqa: F401 - a hook
from tests.guarded import unchanged
from tests.left_open import count_beside_spark, pytest_sessionfinish, take_counts  # noqa: F401 - one is a hook
from tests.left_open import found_in_its_file as _found_in_its_file  # noqa: F401 - a fixture of every file
from tests.longest_first import in_order
from tests.most_memory import pytest_configure  # noqa: F401 - a hook
from tests.whole_files import pytest_xdist_make_scheduler  # noqa: F401 - a hook
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE
from watermark_source.spark.session_conf import OUR_DAEMON, WORKER_DAEMON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARKERS_BY_FIXTURE = {"kafka": "service", "mysql": "service", "postgres": "service", "spark": "spark"}
# How fast a machine makes examples shows nothing about the code.
# The same examples in each run, so that a failure belongs to the change under test.
settings.register_profile(
    "usual", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("usual")
# Chosen by ``make test-long``: random examples, some fifty thousand histories of the planner in all.
settings.register_profile("long", settings.get_profile("usual"), derandomize=False, max_examples=1_000)
# Chosen by ``make soak``: eight hundred times the usual number of examples.
settings.register_profile("soak", settings.get_profile("long"), max_examples=20_000)
SEEDS = (
    "--kills-seed", "--day-seed", "--snapshot-seed", "--histories-seed", "--networks-seed", "--statements-seed",
    "--hypothesis-seed",
)  # fmt: skip
"""Fixed by day, where the examples of hypothesis have none; ``make test-long`` and ``make soak`` choose each."""
_left_out = pytest.StashKey[dict[str, int]]()
_DRAWING = ("kafka.", "pyspark_aligned_kafka.")
_OTHERS_NUMBERS = random.Random()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-services",
        action="store_true",
        help="leave out the tests that need a real server (without this option they fail when it cannot start)",
    )
    most_memory.pytest_addoption(parser)
    parser.addoption("--long", action="store_true", help="run what is marked long too, each with a shorter form here")
    parser.addoption("--kills", type=int, default=2, help="how many kill -9 the kill test does (2)")
    parser.addoption("--mysql-kills", type=int, default=2, help="how many the MySQL kill test does (2)")
    parser.addoption("--join-kills", type=int, default=1, help="how many kill -9 the test of temporal_join does (1)")
    parser.addoption("--ordering-kills", type=int, default=1, help="how many that of order_by_event_time does (1)")
    parser.addoption("--answers-kills", type=int, default=1, help="how many that of early and final answers does (1)")
    parser.addoption("--announcing-kills", type=int, default=2, help="how many that of announced watermarks does (2)")
    parser.addoption("--chain-kills", type=int, default=1, help="how many that of jobs in a row does (1)")
    parser.addoption("--group-kills", type=int, default=2, help="how many that of three topics of a group does (2)")
    parser.addoption("--group-restarts", type=int, default=1, help="how often the slowest of a group is restarted (1)")
    parser.addoption("--chain-clicks", type=int, default=60_000, help="rows that the first of them reads (60000)")
    parser.addoption("--join-users", type=int, default=6_000, help="rows of its table; half as many clicks (6000)")
    parser.addoption("--day-records", type=int, default=1_000, help="most records of a partition of a day")
    parser.addoption("--day-seed", type=int, default=1, help="chooses the day")
    parser.addoption("--kills-seed", type=int, default=1, help="chooses which process is killed, and when (1)")
    parser.addoption("--histories", type=int, default=1, help="how many random histories of topics are compared (1)")
    parser.addoption("--lost-logs", type=int, default=2, help="how many topics lose records at drawn moments (2)")
    parser.addoption("--snapshot-replays", type=int, default=4, help="how many batches of snapshots are done again (4)")
    parser.addoption(
        "--snapshot-seed", type=int, default=1, help="of the first snapshot's writers; the next has the next"
    )
    parser.addoption("--store-outage", type=float, default=3, help="seconds a store is away while queries run (3)")
    parser.addoption("--json-documents", type=int, default=5_000, help="random documents that are scanned (5000)")
    parser.addoption("--silences", type=int, default=1, help="how often a topic falls silent (1)")
    parser.addoption("--resumes", type=int, default=5, help="how often producers with wrong clocks resume (5)")
    parser.addoption(
        "--silent-seconds", type=float, default=8, help="for how long an ingestion query's cost is taken (8)"
    )
    parser.addoption("--reader-replays", type=int, default=12, help="batches a reader does again (12)")
    parser.addoption("--reader-kills", type=int, default=1, help="how many kill -9 it survives (1)")
    parser.addoption("--late-rows", type=int, default=160_000, help="rows of which some are late (160000)")
    parser.addoption("--late-rows-kills", type=int, default=0, help="how many kill -9 while they are read (0)")
    parser.addoption("--partitions-added", type=int, default=6, help="to a topic that is read (6)")
    parser.addoption("--wakes", type=int, default=1, help="how often a silent topic of a join wakes (1)")
    parser.addoption("--broker-frozen", type=float, default=4, help="seconds a broker is frozen in silence (4)")
    parser.addoption(
        "--broken-networks", type=int, default=100, help="histories of broken networks, of each kind (100)"
    )
    parser.addoption("--networks-seed", type=int, default=2, help="of the first of them; the next has the next (2)")
    parser.addoption("--statements", type=int, default=100_000, help="random statements for each server (100000)")
    parser.addoption("--statements-seed", type=int, default=2, help="chooses them (2)")
    parser.addoption("--rows-of-both-forms", type=int, default=100_000, help="of built code and of numba's (100000)")
    parser.addoption("--corpus", help="folder of inputs that fuzzing has collected, run beside the ones kept here")
    parser.addoption("--histories-seed", type=int, default=1, help="of the first history; the next has the next (1)")


def pytest_report_header(config: pytest.Config) -> str:
    seeds = " ".join(f"{name}={config.getoption(name)}" for name in SEEDS)
    places = [str(place.relative_to(config.rootpath)) for place in _unchanged(config)]
    guards = f"\nleft out, for what they guard is as it was when they passed: {', '.join(places)}" if places else ""
    return seeds + guards


def _unchanged(config: pytest.Config) -> list[Path]:
    """Return where the tests are that are left out of this run, because nothing that they guard has changed."""
    if config.getoption("--long"):
        return []
    named = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return unchanged(config.rootpath, named)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep from ``caplog`` what a producer of an earlier test logs while it looks for a broker that has gone.

    And the form of its lines: pytest attaches its handlers also to loggers that do not propagate, and one of Spark's
    gives each handler it gets a formatter of its own, from then on for all tests of the process.
    """
    gc.disable()  # until all is collected
    logging_plugin: Any = session.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (logging_plugin.caplog_handler, logging_plugin.report_handler):
        handler.setFormatter = lambda formatter: None
    logging_plugin.caplog_handler.addFilter(
        lambda record: not (record.name.startswith("kafka.") and record.threadName.endswith("-network-thread"))
    )


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in _MARKERS_BY_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    reasons = {}
    if config.getoption("--without-services"):
        reasons["service"] = "need a real server were left out (--without-services)"
    if flavour_from_environment() is Flavour.MARIADB:
        reasons["needs_mysql"] = "are about MySQL alone were left out (docs/mysql-conformance.md)"
    if os.environ.get(WHERE_VARIABLE) != Where.CONTAINER.value:
        reasons["container"] = "are about containers were left out (make test-containers)"
    if not config.getoption("--long"):
        reasons["long"] = "are longer by nature were left out (--long)"
    places, files = _unchanged(config), {item.path for item in items}
    left_out = {file for file in files if any(file.is_relative_to(place) for place in places)}
    _leave_out(config, items, lambda item: item.path in left_out)
    config.stash[_left_out] = {
        reason: _leave_out(config, items, operator.methodcaller("get_closest_marker", marker))
        for marker, reason in reasons.items()
    }
    count_beside_spark(items)
    items[:] = [items[index] for index in in_order([item.path for item in items], config.rootpath)]


def _leave_out(config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], object]) -> int:
    """Deselect items, and return how many."""
    left_out = [item for item in items if is_left_out(item)]
    items[:] = [item for item in items if not is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    return len(left_out)


def pytest_collection_finish() -> None:
    """Leave what importing and collecting made out of all collections of garbage: it stays for the whole run."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
        # A connection of an earlier test may still look for a broker that has gone, with pauses of random length, and
        # examples made from random numbers must not depend on who else draws them: it gets random numbers of its own.
        for name, module in tuple(sys.modules.items()):
            if name.startswith(_DRAWING) and getattr(module, "random", None) is random:
                module.random = _OTHERS_NUMBERS  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before the warnings are listed
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, object, object]:
    left_open = take_counts(terminalreporter)
    result = yield
    if left_open:
        terminalreporter.write_line(f"left open until garbage was collected: {left_open}", yellow=True)
    for reason, count in config.stash.get(_left_out, {}).items():
        if count:
            terminalreporter.write_line(f"{count} tests that {reason}", yellow=True)
    return result


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker for the whole run. A test that stops or kills one starts its own with ``kafka_service``."""
    with broker_of_run(request.config) as broker:
        yield broker


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySql]:
    """A MySQL server for the whole run. A test that stops or kills one starts its own with ``mysql_service``."""
    # A process of tests may hold a connection for each reader that any of them has made.
    with mysql_service(config={"max_connections": "1000"}) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole run. A test that stops one starts its own with ``postgres_service``."""
    with postgres_service() as server:
        yield server


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses, and that states which test it belongs to."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:60]
    return f"{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_topic(kafka: Kafka, topic_name: str) -> Callable[..., str]:
    """``new_topic(partitions=1, config=None)`` creates a topic of this test's own and returns its name."""
    created: list[str] = []

    def create(partitions: int = 1, *, config: dict[str, str] | None = None) -> str:
        name = f"{topic_name}-{len(created)}"
        create_topic(kafka.bootstrap, name, partitions, config=config)
        created.append(name)
        return name

    return create


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark for the whole run: two cores, UTC, no web page."""
    from pyspark.sql import SparkSession

    is_long = request.config.getoption("--long")
    os.environ["PYSPARK_PYTHON"] = sys.executable if is_long else quick_python()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # No query of a test runs long enough for Java's second compiler to be worth its time.
        "spark.driver.extraJavaOptions": quick_spark(),
        "spark.driver.memory": "2g",
        **LOCAL_CHECKPOINTS,
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        WORKER_DAEMON: OUR_DAEMON,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not is_long:
        # Between two questions for news: by default a hundred a second, in every query that waits.
        settings["spark.sql.streaming.pollingDelay"] = "100ms"
        # Generating and compiling Java for each plan takes a quarter of Java's time. Sessions that tests start in other
        # processes have the code that users have, and so has this one in ``make test-long``.
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    if any("built_in_kafka" in getattr(item, "fixturenames", ()) for item in request.session.items):
        # Jars are part of a session from its start.
        settings["spark.jars"] = ",".join(map(str, spark_kafka_jars()))
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def built_in_kafka(spark: SparkSession) -> str:
    """The format name of Spark's own Kafka source, which ``spark`` has loaded for this fixture's sake."""
    return "kafka"


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """Spark's state in RocksDB, which transformWithState needs; the others' queries are faster without."""
    spark.conf.set(STATE_STORE, ROCKSDB)
    yield
    spark.conf.unset(STATE_STORE)


@pytest.fixture
def connect_port() -> Iterator[None]:
    """Let no other process start a local Connect server meanwhile: all of them listen on one port."""
    with (Path(tempfile.gettempdir()) / f"watermark-source-tests-connect-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What this project has logged so far; clients that earlier tests left behind log on in their threads."""
    ours = ("watermark_source", "pyspark_aligned_kafka", "pyspark_mysql_cdc_wm")
    return lambda: [each.getMessage() for each in caplog.records if each.name.startswith(ours)]


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where sources meet that run in this process: elsewhere they would meet those of tests in other processes."""
    return str(tmp_path_factory.mktemp("driver"))


@pytest.fixture(autouse=True)
def _own_driver_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, driver_folder: str) -> None:
    if "spark" not in request.fixturenames:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", driver_folder)


@pytest.fixture(autouse=True)
def _no_query_survives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()
