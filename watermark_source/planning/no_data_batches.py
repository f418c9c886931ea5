"""No-data batches: for how long a source has had nothing to do, after which time alone may be worth a batch."""

from __future__ import annotations

from dataclasses import dataclass

from watermark_source.eventtime.watermark import Millis

_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class Rest:
    """It begins with the second plan in a row that is no batch.

    After the first one Spark may still make a batch of its own, for what the last watermark closed. So a query comes to
    an end of what there is, however long its batches take (Spark's ``processAllAvailable`` waits for that).
    """

    plans: int = 0
    """Without a batch, one after another, up to two."""
    since: Millis | None = None

    def after(self, *, is_batch: bool, asked_at: Millis) -> Rest:
        """Return what it is after a plan."""
        if is_batch:
            return Rest()
        plans = min(self.plans + 1, _ENOUGH)
        return Rest(plans, asked_at if self.since is None and plans == _ENOUGH else self.since)

    def lasted(self, asked_at: Millis) -> Millis | None:
        """Return for how long; ``None`` if it has not begun."""
        return None if self.since is None else Millis(asked_at - self.since)
