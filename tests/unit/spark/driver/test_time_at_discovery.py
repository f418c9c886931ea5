"""How far time had come when splits were last looked for: who looks, and when."""

from __future__ import annotations

from collections.abc import Set

from watermark_source.contract.stream import SplitDiscovery
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.logs import TimeAtDiscovery


class Looks(SplitDiscovery):
    """A discovery whose looks are over when the test lets them."""

    def __init__(self) -> None:
        self.now, self.began = 0.0, -1.0
        self.asked: list[float] = []

    def discover(self) -> Set[Split]:
        return frozenset()

    def looked_since(self, moment: float, *, wait: float) -> bool:
        self.asked.append(moment)
        return self.began >= moment


def time_at_discovery(looks: Looks) -> TimeAtDiscovery:
    return TimeAtDiscovery(looks, clock=lambda: looks.now)


def at(looks: Looks, found: TimeAtDiscovery, reached: int, due: int) -> int | None:
    looks.now = float(reached)
    return found.as_of(Millis(reached), Millis(due))


def test_nothing_is_known_before_the_first_look_and_then_what_was_reached_when_it_began() -> None:
    looks = Looks()
    found = time_at_discovery(looks)
    assert at(looks, found, 10, 0) is None
    assert at(looks, found, 12, 0) is None
    # It began after it was asked for, however long ago that is.
    looks.began = 11.0
    assert at(looks, found, 30, 0) == 10
    assert looks.asked == [10.0, 10.0, 10.0]


def test_a_look_is_asked_for_only_where_it_takes_something_on() -> None:
    looks = Looks()
    found = time_at_discovery(looks)
    looks.began = 1_000.0
    assert at(looks, found, 10, 0) == 10
    assert at(looks, found, 20, 0) == 10
    assert at(looks, found, 20, 20) == 10
    assert len(looks.asked) == 1
    assert at(looks, found, 21, 20) == 21
    found.note_ended(Millis(30))
    assert at(looks, found, 40, 20) == 30
    assert len(looks.asked) == 2


def test_what_went_back_is_known_from_a_new_look_on() -> None:
    looks = Looks()
    found = time_at_discovery(looks)
    looks.began = 100.0
    assert at(looks, found, 50, 0) == 50
    looks.began = 0.0
    assert at(looks, found, 40, 0) is None
    looks.began = 45.0
    assert at(looks, found, 60, 0) == 40
