"""The turns of a query's sources: each writes its own into its file of the driver's folder, and reads the others'.

Spark asks the sources of a query one after the other from one thread, so no source reads a turn of its own query while
that is written. A query is known by the id of its run, which its tasks tell: until a source has had rows read in this
run, it is in no query, and the group counts it by the store alone.
"""

from __future__ import annotations

import json
import logging

from watermark_source.durations import format_duration
from watermark_source.errors import SourceError
from watermark_source.group_store.local_members import LocalMembers
from watermark_source.planning.group import LONGEST_NAME, GroupMember, MemberStatus, OtherMembers
from watermark_source.planning.one_query import Outside, Shortfall, Turn, shortfall_of, within_query
from watermark_source.planning.planner import Plan
from watermark_source.planning.watermark import Millis, watermark_text

_log = logging.getLogger(__name__)


class QueryTurns:
    """The turns of this source, and of the others of its query."""

    def __init__(self, source_name: str) -> None:
        self._source_name = source_name[:LONGEST_NAME]
        self._number = 0
        self._run: str | None = None
        self._turns: tuple[Turn, ...] = ()
        """Of the other sources, when this one was asked last."""
        self._outside: Outside | None = None
        self._reach: Millis | None = None
        """As told before the plan that is being made."""
        self.shortfall: str | None = None
        """By what the last plan fell short of what had been told before it, if others relied on that."""

    @property
    def members(self) -> frozenset[str]:
        """The names of the query's other sources in the group."""
        return frozenset(turn.member for turn in self._turns)

    def begin(self, run: str | None, local: LocalMembers | None) -> None:
        """Take in that Spark asks this source; ``run``: of the query, once it is known."""
        self._number += 1
        self._run = run
        self._turns = () if run is None or local is None else tuple(_turns_of(run, local.texts()))
        self._outside = None

    def seen(self, others: OtherMembers, last_limit: Millis | None) -> OtherMembers:
        """Return the other members as they count for this source; ``last_limit`` is that of its last batch."""
        if not others.apart:
            return others
        self._outside = Outside.of(others)
        return within_query(others, self._turns, self._number, last_limit)

    def end(
        self, planned: Plan, report: GroupMember, member: str, local: LocalMembers | None, drift: int | None
    ) -> None:
        """Tell the others what was planned, and name what it fell short of.

        Args:
            planned: the plan.
            report: as it is told to the whole group.
            member: this source's name in the group.
            local: holds the file of this source.
            drift: in force in the group.
        """
        short = shortfall_of(report, self._reach, self._number, self._turns, drift)
        self.shortfall = None if short is None else _text_of(short)
        if short is not None:
            _log.warning("%s", self.shortfall)
        # Only who counts the others by their turns comes as far as they allow.
        joined = bool(self._turns) and self.members <= planned.observation.others.apart
        self._reach = _reach_of(planned) if joined else None
        if self._run is not None and local is not None:
            outside = self._outside if planned.observation.others.ceiling is None else None
            turn = Turn(self._source_name, member, self._number, report, self._reach, planned.lead, outside)
            local.write(_encoded(self._run, turn))


def _reach_of(planned: Plan) -> Millis | None:
    """Return the reach of a plan; none where the system does not answer by now: the batch is planned all the same."""
    try:
        return planned.reach
    except SourceError as error:
        _log.debug("how far the next batch will surely come could not be looked up: %s", error)
        return None


def _text_of(short: Shortfall) -> str:
    return (
        f"this source could read only up to {watermark_text(short.reached)}, and had told the other sources of its "
        f"query {watermark_text(short.reach)}: {short.ahead} is ahead by "
        f"{format_duration(short.lead - short.reached)}, more than alignmentMaxDrift, and waits in the next batch. Its "
        "system did not answer, or rows came that are older"
    )


def _encoded(run: str, turn: Turn) -> str:
    report = [turn.report.status.value, turn.report.watermark]
    return json.dumps([run, turn.source, turn.member, turn.number, report, turn.reach, turn.lead, turn.outside])


def _turns_of(run: str, texts: list[str]) -> list[Turn]:
    """Return the turns of one run; a text of another run may be torn, as it is being written."""
    found = []
    for text in texts:
        if text.startswith(json.dumps([run])[:-1]):
            _, source, member, number, (status, watermark), reach, lead, outside = json.loads(text)
            report = GroupMember(MemberStatus(status), watermark)
            found.append(
                Turn(source, member, number, report, reach, lead, None if outside is None else Outside(*outside))
            )
    return found
