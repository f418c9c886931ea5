"""What a process keeps of its last plan for the next one, beyond what the offset holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.no_data_batches import Rest
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.planner import Plan
from watermark_source.planning.state import SourceState
from watermark_source.spark.driver.backlog import splits_behind
from watermark_source.spark.driver.polling import Pace


@dataclass(frozen=True, slots=True)
class LastPlan:
    """Before the first plan of a process: nothing."""

    offset: Mapping[str, Any] | None = None
    """What Spark was answered."""
    state: SourceState = field(default_factory=SourceState)
    """What goes on if Spark asks from that offset."""
    is_behind: bool = False
    """Whether it left rows for the next."""
    newest_mattered: bool = False
    """Then they probably do again, and planning twice would cost more."""
    rows_at: Millis | None = None
    """When the ends were asked for of the last plan with rows."""
    asked_at: Millis | None = None
    """When the ends were asked for."""
    leads_to: Millis | None = None
    """See ``Plan.leads_to``."""
    rest: Rest = field(default_factory=Rest)
    pace: Pace = field(default_factory=Pace)

    @property
    def is_first(self) -> bool:
        """Whether there was none yet in this process."""
        return self.offset is None

    def after(
        self,
        planned: Plan,
        logs: ObservedLogs,
        before: SourceState,
        *,
        state: SourceState,
        offset: Mapping[str, Any],
        cpu: float,
    ) -> LastPlan:
        """Return what the plan after this one leaves.

        Args:
            planned: the plan.
            logs: what it was made of.
            before: the state it began with.
            state: the state that goes on.
            offset: what Spark is answered.
            cpu: seconds of a core that it took.
        """
        held = planned.state.group.held > before.group.held
        return LastPlan(
            offset=offset,
            state=state,
            is_behind=bool(splits_behind(planned.state, logs.ends)),
            newest_mattered=planned.newest_matters,
            rows_at=logs.asked_at if planned.has_rows else self.rows_at,
            asked_at=logs.asked_at,
            leads_to=planned.leads_to,
            rest=self.rest.after(is_batch=planned.is_batch, asked_at=logs.asked_at),
            # A batch for the time alone is no reason to look more often.
            pace=self.pace.after(is_batch=planned.has_rows, held=held, cpu=cpu),
        )
