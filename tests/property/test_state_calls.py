"""Questions to a state that are sent together never fill a socket's buffer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from watermark_source.operators.state_calls import groups


@given(st.lists(st.integers(0, 40_000), max_size=400))
def test_what_is_sent_together_is_short_or_one_message(sizes: list[int]) -> None:
    messages = [bytes(size) for size in sizes]
    found = list(groups(messages))
    assert [message for group in found for message in group] == messages
    assert all(len(group) == 1 or sum(map(len, group)) <= 32_768 for group in found)
    assert all(0 < len(group) <= 128 for group in found)


def test_many_short_questions_are_few_groups() -> None:
    assert [len(group) for group in groups([b"key"] * 300)] == [128, 128, 44]
