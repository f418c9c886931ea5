"""What a reader asked of the page in its address. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlencode

EVERY: Final = 5
"""Seconds after which an open page is sent again, or a browser without scripts loads it again."""
REFRESHES: Final = (EVERY, 0)
"""What a reader can choose; 0: the page stays as it is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader asked of the page."""

    refresh: int = EVERY
    """Seconds after which it is sent again, 0 for never."""
    query: str | None = None
    """The id of the query that is drawn whole."""

    def address(self, *, refresh: int | None = None, query: str | None = None) -> str:
        """Return the address of the page with another choice."""
        chosen = {"refresh": self.refresh if refresh is None else refresh, "query": query or self.query}
        return "?" + urlencode({key: value for key, value in chosen.items() if value is not None})


ASKED_NOTHING: Final = Asked()


def asked_of(query: str, ids: Set[str]) -> Asked:
    """Return what was asked in the query of an address: of what there is nothing of the kind, as if it were not there.

    Args:
        query: as in the address.
        ids: of the queries on the page.
    """
    chosen = {key: values[0] for key, values in parse_qs(query).items()}
    refresh = next((seconds for seconds in REFRESHES if str(seconds) == chosen.get("refresh")), EVERY)
    return Asked(refresh, chosen["query"] if chosen.get("query") in ids else None)
