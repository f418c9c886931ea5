"""The driver's look-ups while the only broker dies, freezes and comes back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from services.kafka import kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic
from services.wait_until import wait_until
from tests.integration.kafka_lookups import ENDS, SPLITS, ask_again_and_again, connect
from watermark_source.contract.stream import Ends, LogBounds
from watermark_source.errors import ResponseTimeoutError, UnreachableError

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def one_broker() -> Iterator[LocalKafka]:
    with kafka_cluster(1, config={"connections.max.idle.ms": "1000"}, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t", 6)
        yield cluster


@contextlib.contextmanager
def after(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_a_connection_that_the_broker_closed_while_no_one_asked_is_made_again(one_broker: LocalKafka) -> None:
    bounds = connect(one_broker).bounds
    time.sleep(2.5)
    assert bounds.end_positions(SPLITS) == ENDS


@pytest.mark.parametrize(
    ("leave", "come_back", "error"),
    [
        (LocalKafka.kill, LocalKafka.start, UnreachableError),
        (LocalKafka.pause, LocalKafka.resume, ResponseTimeoutError),
    ],
    ids=["killed", "frozen"],
)
def test_an_only_broker_that_stays_away_is_an_error_after_the_limit_and_one_that_comes_back_is_waited_for(
    one_broker: LocalKafka,
    leave: Callable[[LocalKafka], None],
    come_back: Callable[[LocalKafka], None],
    error: type[Exception],
) -> None:
    patient, bounds, hasty = (
        connect(one_broker, default_api_timeout_ms=limit).bounds for limit in ("60000", "5000", "2000")
    )
    leave(one_broker)
    begun = time.monotonic()
    try:
        with pytest.raises(error):
            hasty.end_positions(SPLITS)
        assert time.monotonic() - begun < 60
        begun = time.monotonic()
        with pytest.raises(error, match="within 5 s"):
            ask_again_and_again(bounds, seconds=60)
        assert 4.9 < time.monotonic() - begun < 60
    finally:
        with after(1.0, lambda: come_back(one_broker)):
            assert patient.end_positions(SPLITS) == ENDS
    wait_until(lambda: within_its_limit(hasty), 60, "the broker's answer to one that waits two seconds")
    wait_until(lambda: bounds.current_ends(SPLITS) == Ends(ENDS), 60, "the ends of all")


def within_its_limit(bounds: LogBounds) -> bool:
    try:
        return bounds.end_positions(SPLITS) == ENDS
    except (ResponseTimeoutError, UnreachableError):
        # A broker that has just come back, on a busy machine.
        return False


def test_discovery_waits_for_a_frozen_broker_only_when_its_last_answer_is_too_old(one_broker: LocalKafka) -> None:
    discovery = connect(one_broker, default_api_timeout_ms="2000", metadata_max_age_ms="300").discovery
    one_broker.pause()
    try:
        paused, waited = time.monotonic(), []
        while time.monotonic() < paused + 2:
            time.sleep(0.2)
            begun = time.monotonic()
            assert discovery.discover() == SPLITS
            waited.append(time.monotonic() - begun)
        # A broker that is waited for takes the limit, two seconds, each time.
        assert min(waited) < 1
        time.sleep(6.5)
        with pytest.raises(ResponseTimeoutError):
            discovery.discover()
    finally:
        one_broker.resume()
    assert discovery.discover() == SPLITS
