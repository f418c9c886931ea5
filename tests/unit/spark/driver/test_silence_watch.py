"""The watch of quiet logs, against logs that answer, fail or are slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Set

from watermark_source.contract.stream import Ends
from watermark_source.errors import UnreachableError
from watermark_source.planning.split import Split
from watermark_source.spark.driver.silence_watch import PolledSplits, Watch

A, B = Split("t", 0), Split("t", 1)
TIMEOUT = 1_000


class Logs:
    """Answers as it is told, and notes what it was asked."""

    def __init__(self, answer: Callable[[Set[Split]], Ends]) -> None:
        self.answer = answer
        self.asked: list[Set[Split]] = []
        self.enough = threading.Event()

    def current_ends(self, splits: Set[Split]) -> Ends:
        self.asked.append(splits)
        if len(self.asked) > 2:
            self.enough.set()
        return self.answer(splits)


def _fine(splits: Set[Split]) -> Ends:
    return Ends(dict.fromkeys(splits, 1))


def _fails(_: Set[Split]) -> Ends:
    raise UnreachableError("away")


def _silent_after_looks(answer: Callable[[Set[Split]], Ends]) -> Set[Split]:
    logs = Logs(answer)
    watch = Watch(logs, TIMEOUT, PolledSplits())
    watch.begin({A, B})
    assert logs.enough.wait(30)
    found = watch.end()
    watch.close()
    assert logs.asked[0] == {A, B}
    return found


def test_who_answers_is_not_silent() -> None:
    assert _silent_after_looks(_fine) == set()


def test_who_does_not_answer_once_is_silent() -> None:
    looks = iter([{A: None}, {}, {}, {}])
    assert _silent_after_looks(lambda splits: Ends({}, next(looks, {}))) == {A}


def test_after_an_error_all_are_silent_and_it_goes_on() -> None:
    assert _silent_after_looks(_fails) == {A, B}


def test_while_an_answer_is_long_in_coming_all_are_silent() -> None:
    done = threading.Event()

    def waits(splits: Set[Split]) -> Ends:
        done.wait(30)
        return _fine(splits)

    watch = Watch(Logs(waits), TIMEOUT, PolledSplits())
    watch.begin({A})
    time.sleep(2)
    assert watch.end() == {A}
    # What that answer states at last is about a time that is over.
    watch.begin({A})
    done.set()
    assert watch.end() == set()
    watch.close()


def test_between_plans_that_follow_soon_no_one_is_asked() -> None:
    logs = Logs(_fine)
    watch = Watch(logs, 60_000, PolledSplits())
    for _ in range(20):
        watch.begin({A})
        assert watch.end() == set()
    watch.close()
    assert logs.asked == []


def test_without_an_idle_timeout_or_quiet_splits_no_one_is_asked() -> None:
    for timeout, splits in ((None, {A}), (1_000, set[Split]())):
        logs = Logs(_fine)
        watch = Watch(logs, timeout, PolledSplits())
        watch.begin(splits)
        time.sleep(0.6)
        assert watch.end() == set()
        watch.close()
        assert logs.asked == []
