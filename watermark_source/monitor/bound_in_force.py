"""PURE. The bound on out-of-orderness that is in force where it is learned, as it stands in a status report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from watermark_source.monitor.report_fields import Fields

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class BoundInForce:
    """Milliseconds."""

    bound: int
    most: int
    """The largest that may be learned, and the one until enough rows are known."""
    on_time: int
    """So many rows of a million are to be on time."""
    since: int | None = None
    """Since when, milliseconds since 1970-01-01 UTC; of a query that was restarted, since the restart at the most."""

    def after(self, before: BoundInForce | None, now: int) -> BoundInForce:
        """Return it with the moment since when it is so."""
        is_new = before is None or before.bound != self.bound
        return replace(self, since=now if is_new or before is None else before.since)

    @property
    def wish(self) -> float:
        """Return the share of rows that may be late."""
        return (_MILLION - self.on_time) / _MILLION


def bound_to_json(of: BoundInForce | None) -> dict[str, Any] | None:
    """Return the fields of a report."""
    if of is None:
        return None
    since = {} if of.since is None else {"since": of.since}
    return {"bound": of.bound, "most": of.most, "onTime": of.on_time, **since}


def bound_from_json(fields: Fields) -> BoundInForce:
    """Read what ``bound_to_json`` wrote."""
    since = fields.optional_integer("since")
    return BoundInForce(fields.integer("bound"), fields.integer("most"), fields.integer("onTime"), since)
