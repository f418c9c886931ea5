"""What strategies keep of splits, as the text that offsets have of it."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""What JSON has: ``None``, ``bool``, ``int``, ``float``, ``str``, lists of these, and dicts of these by ``str``."""


def canonical(state: Json) -> str:
    """Return a state as compact JSON, equal text for equal state.

    Raises:
        TypeError: it is no JSON.
        ValueError: a number that is none, or a text that is no Unicode.
    """
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def value_of(text: str | None) -> Json:
    """Return the state that a split's text stands for; ``None`` before its first range."""
    return None if text is None else json.loads(text)
