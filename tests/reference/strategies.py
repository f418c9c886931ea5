"""Random scripts for the time core: small event times, so that ties are common, and the ends of time."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.reference.eventtime.watermark import Emission, Status, Watermark
from watermark_source.eventtime.watermark import MAX, MIN, Millis

small_times: SearchStrategy[Millis] = st.integers(-3, 25).map(Millis)
any_times: SearchStrategy[Millis] = st.one_of(
    small_times, st.sampled_from([MIN, Millis(MIN + 1), Millis(MAX - 1)]), st.integers(MIN, MAX - 1).map(Millis)
)
ended: SearchStrategy[Millis] = st.just(MAX)
statuses: SearchStrategy[Status] = st.sampled_from(list(Status))
watermarks: SearchStrategy[Watermark] = any_times.map(Watermark)
flagged: SearchStrategy[Watermark] = st.builds(Watermark, any_times, use_processing_time=st.booleans())
drifts: SearchStrategy[int] = st.one_of(st.integers(0, 10), st.just(MAX))


def emissions(members: int, *, ends: bool = False) -> SearchStrategy[list[tuple[int, Emission]]]:
    """Scripts of ``(member, what it says)``, with the end of time among it if ``ends``."""
    times = st.one_of(any_times, ended) if ends else any_times
    said: SearchStrategy[Emission] = st.one_of(times.map(Watermark), statuses)
    return st.lists(st.tuples(st.integers(0, members - 1), said), max_size=40)


def flagged_emissions(members: int) -> SearchStrategy[list[tuple[int, Emission]]]:
    """The same with processing-time flags."""
    said: SearchStrategy[Emission] = st.one_of(flagged, statuses)
    return st.lists(st.tuples(st.integers(0, members - 1), said), max_size=40)
