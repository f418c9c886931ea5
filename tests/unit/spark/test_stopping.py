"""Queries are stopped between two batches, at the end of a block and by Ctrl-C in it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from services.wait_until import wait_until
from watermark_source import stop_between_batches


class Query:
    """A query with a batch that runs until it is asked to end."""

    def __init__(self, *, is_busy: bool = False) -> None:
        self.is_busy = is_busy
        self.isActive = True
        self.message = "Processing new data"
        self.stopped_in_a_batch: bool | None = None

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.is_busy, "message": self.message}

    def stop(self) -> None:
        self.stopped_in_a_batch = self.is_busy
        self.isActive = False

    def awaitTermination(self) -> None:  # noqa: N802 (Spark's name)
        wait_until(lambda: not self.isActive, 30, "the end of the query")


@pytest.fixture(autouse=True)
def former() -> Iterator[Any]:
    """The handler of before, which is back behind each block."""
    before = signal.getsignal(signal.SIGINT)
    yield before
    assert signal.getsignal(signal.SIGINT) is before


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)  # to this thread: the handler has run when it returns


def test_the_end_of_the_block_stops_a_query_when_no_batch_runs() -> None:
    query: Any = Query(is_busy=True)
    with stop_between_batches(query):
        threading.Timer(0.1, lambda: setattr(query, "is_busy", False)).start()
    assert query.stopped_in_a_batch is False


def test_a_query_whose_batches_follow_each_other_is_stopped_when_one_is_planned() -> None:
    query: Any = Query(is_busy=True)
    began = time.monotonic()
    with stop_between_batches(query, timeout=60):
        query.message = "Getting offsets from KafkaDataSource"
    assert time.monotonic() - began < 30
    assert not query.isActive


def test_a_batch_that_takes_longer_is_not_waited_for() -> None:
    query: Any = Query(is_busy=True)
    with stop_between_batches(query, timeout=0.05):
        pass
    assert query.stopped_in_a_batch is True


def test_an_error_of_the_block_and_one_of_the_stop_are_raised() -> None:
    query: Any = Query()
    with pytest.raises(ZeroDivisionError), stop_between_batches(query):
        raise ZeroDivisionError
    assert not query.isActive
    query.stop = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError), stop_between_batches(query):
        pass


def test_ctrl_c_is_confirmed_and_ends_what_the_block_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    queries: Any = [Query(), Query()]
    with stop_between_batches(*queries) as requests:
        assert not requests
        ctrl_c()
        for query in queries:
            query.awaitTermination()
    assert requests
    assert capsys.readouterr().err.count("Ctrl-C: the query stops when its batch is done") == 1


def test_a_second_ctrl_c_stops_at_once_and_a_third_is_pythons() -> None:
    query: Any = Query(is_busy=True)
    with stop_between_batches(query, timeout=60):
        ctrl_c()
        time.sleep(0.1)
        assert query.isActive
        ctrl_c()
        query.awaitTermination()
        assert query.stopped_in_a_batch
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()


def test_in_another_thread_the_end_of_the_block_stops_the_query() -> None:
    query: Any = Query()

    def block() -> None:
        with stop_between_batches(query):
            assert query.isActive

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert query.stopped_in_a_batch is False
