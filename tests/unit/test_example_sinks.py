"""The sink that examples stop their queries beside."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

from examples.sinks import WholeBatches

NO_FRAME: Any = None


def test_closing_waits_for_the_batch_under_way_and_lets_no_other_one_in() -> None:
    began, may_end = Event(), Event()
    done: list[int] = []

    def function(_: Any, number: int) -> None:
        began.set()
        assert may_end.wait(30)
        done.append(number)

    sink = WholeBatches(function)
    batch, closing = Thread(target=sink, args=(NO_FRAME, 0)), Thread(target=sink.close)
    batch.start()
    assert began.wait(30)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    may_end.set()
    closing.join(30)
    assert done == [0]
    sink(NO_FRAME, 1)
    batch.join(30)
    assert done == [0]
