"""How many examples a property is tried with where the usual number is too small for it."""

from __future__ import annotations

from hypothesis import settings


def at_least(examples: int) -> settings:
    """Try so many examples by day; a profile that has more, as that of ``make test-long``, keeps its number."""
    profile = settings.default
    assert profile is not None
    return settings(max_examples=max(examples, profile.max_examples))
