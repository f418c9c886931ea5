"""The offset codec under hypothesis: nothing lost, one text a state, and only its own error on anything else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from watermark_source.errors import OffsetError
from watermark_source.planning.disorder import BUCKETS, Learned
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import GroupState, Returning, SourceState, SplitState, SplitStatus
from watermark_source.planning.watermark import MAX, MIN, Millis

CODEC = OffsetCodec(source="aligned-kafka", name="orders")

millis = st.one_of(st.integers(MIN, MAX), st.integers(1_600_000_000_000, 1_800_000_000_000)).map(Millis)
splits = st.builds(Split, st.text(min_size=1, max_size=8), st.integers(0, 2**31 - 1))


@st.composite
def split_states(draw: st.DrawFn) -> SplitState:
    position = draw(st.integers(0, MAX))
    return SplitState(
        position=position,
        observed=draw(st.integers(0, position)),
        watermark=draw(st.none() | millis),
        status=draw(st.sampled_from(SplitStatus)),
        since=draw(st.none() | millis),
        returning=draw(st.none() | st.sampled_from(Returning)),
    )


buckets = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 10**12), max_size=5)
counts = buckets.map(lambda found: tuple(sorted(found.items())))


@st.composite
def with_learned(draw: st.DrawFn, states: st.SearchStrategy[SourceState]) -> SourceState:
    """A state of a source that learns from disorder."""
    state = draw(states)
    learned = Learned(draw(st.integers(0, 10**12)), draw(counts), draw(counts))
    usual = {s: None if t.watermark is None else t.watermark + learned.bound + 1 for s, t in state.splits.items()}
    highest = {s: draw(st.just(at) | millis | st.none()) for s, at in usual.items()}
    splits = {
        s: replace(t, highest=Millis(h) if h is not None and h <= MAX else None)
        for (s, t), h in zip(state.splits.items(), highest.values(), strict=True)
    }
    return replace(state, splits=splits, learned=learned)


plain_states = st.builds(
    SourceState,
    splits=st.dictionaries(splits, split_states(), max_size=5),
    watermark=st.none() | millis,
    use_processing_time=st.booleans(),
    group=st.builds(GroupState, limit=st.none() | millis),
    future_cap=st.none() | millis,
    event_time=st.none() | st.text(min_size=1, max_size=8),
    run=st.integers(0, 2**40),
)
states = plain_states | with_learned(plain_states)


def text(state: SourceState) -> str:
    return json.dumps(CODEC.encode(state))


@given(states)
def test_a_state_survives_its_json(state: SourceState) -> None:
    assert CODEC.decode(json.loads(text(state))) == state


def shifted(state: SourceState, by: int, moments: str) -> SourceState:
    """The same state with all its watermarks, or all moments of its splits, at another time."""

    def later(split: SplitState) -> SplitState:
        changes: dict[str, Any] = {moments: _later(getattr(split, moments), by)}
        return replace(split, **changes)

    moved = {s: later(t) for s, t in state.splits.items()}
    combined = _later(state.watermark, by) if moments == "watermark" else state.watermark
    return replace(state, splits=moved, watermark=combined)


def _later(moment: Millis | None, by: int) -> Millis | None:
    return None if moment is None else Millis(moment + by if moment < 0 else moment - by)


@given(states, st.integers(0, 1), st.sampled_from(["watermark", "since"]))
def test_a_state_at_another_time_has_another_text(state: SourceState, by: int, moments: str) -> None:
    other = shifted(state, by, moments)
    assert (text(state) == text(other)) == (state == other)


@given(states, states)
def test_texts_are_equal_exactly_when_states_are(one: SourceState, other: SourceState) -> None:
    assert (text(one) == text(other)) == (one == other)


@given(states, st.randoms())
def test_the_order_splits_were_found_in_does_not_show(state: SourceState, random: object) -> None:
    found = list(state.splits.items())
    random.shuffle(found)  # type: ignore[attr-defined]
    assert text(replace(state, splits=dict(found))) == text(state)


@given(states)
def test_the_text_is_canonical_json_of_whole_numbers(state: SourceState) -> None:
    loaded = json.loads(text(state), parse_float=lambda seen: (_ for _ in ()).throw(AssertionError(seen)))
    assert json.dumps(loaded, sort_keys=True) == text(state)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(anything)
def test_any_other_json_is_refused_with_an_offset_error(offset: object) -> None:
    try:
        CODEC.decode(offset)
    except OffsetError:
        return
    raise AssertionError("accepted")


@given(states, st.data())
def test_a_damaged_offset_is_refused_or_read_as_it_stands(state: SourceState, data: st.DataObject) -> None:
    offset = json.loads(text(state))
    at = offset
    while isinstance(at, dict | list) and at:
        place = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[place], dict | list) or data.draw(st.booleans()):
            damage = data.draw(st.sampled_from(["replace", "remove", "add"]))
            if damage == "replace":
                at[place] = data.draw(anything)
            elif damage == "remove":
                del at[place]
            elif isinstance(at, dict):
                at[data.draw(st.text(max_size=3) | st.just("007"))] = at[place]
            else:
                at.append(data.draw(anything))
            break
        at = at[place]
    try:
        read = CODEC.decode(offset)
    except OffsetError:
        return
    assert CODEC.decode(json.loads(text(read))) == read


@given(st.integers(1, 400), st.sampled_from(SplitStatus), st.booleans())
def test_a_split_takes_about_50_bytes_at_most(count: int, status: SplitStatus, moving: bool) -> None:
    """Positions of eleven digits, watermarks up to three hours and moments up to a day apart."""
    now = 1_700_000_000_000
    found = {
        Split("orders", n): SplitState(
            position=99_000_000_000 + n,
            observed=99_000_000_000 + n - (100_000 if moving else 0),
            watermark=Millis(now + n * 27_000),
            status=SplitStatus.ACTIVE if moving else status,
            since=None if moving else Millis(now + n * 200_000),
        )
        for n in range(count)
    }
    empty = SourceState(watermark=Millis(now), run=1)
    size = len(text(replace(empty, splits=found))) - len(text(empty))
    assert size / count <= 50 + 40 / count
