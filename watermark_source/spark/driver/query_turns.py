"""The turns of a query's sources: each writes its own into its file of the driver's folder, and reads the others'.

Spark asks the sources of a query one after the other from one thread, so no source reads a turn of its own query while
that is written. A query is known by the id of its run, which its tasks report: until a source has had rows read in this
run, it is in no query, and the group counts it by the store alone.
"""

from __future__ import annotations

import json
import logging
import re
from functools import partial
from typing import Final

from watermark_source.durations import format_duration
from watermark_source.errors import SourceError
from watermark_source.group_store.local_members import LocalMembers
from watermark_source.planning.group import FIRST, LONGEST_NAME, GroupMember, MemberStatus
from watermark_source.planning.one_query import Outside, QueryTurns, Shortfall, Turn
from watermark_source.planning.planner import Plan
from watermark_source.planning.watermark import Millis, watermark_text
from watermark_source.spark_process import ABOUT

_log = logging.getLogger(__name__)

_RUN: Final = re.compile(r'\["(?P<query>\S+) \S+"')
"""The id of a run, which begins with that of its query."""


class SharedTurns(QueryTurns):
    """The turns of this source, and of the others of its query, in files."""

    def __init__(self, source_name: str) -> None:
        super().__init__(source_name[:LONGEST_NAME])
        self._run: str | None = None
        self.queries: frozenset[str] = frozenset()
        """Ids of the queries of this driver that have other sources in the group."""

    def read(self, run: str | None, local: LocalMembers | None) -> None:
        """Take in that Spark asks this source; ``run``: of the query, once it is known."""
        self._run = run
        texts = [] if local is None else local.texts()
        self.queries = frozenset(found["query"] for text in texts if (found := _RUN.match(text)) is not None)
        self.begin(() if run is None else turns_of(run, texts))

    def write(
        self, planned: Plan, report: GroupMember, member: str, local: LocalMembers | None, drift: int | None
    ) -> None:
        """Publish what was planned, and log what it fell short of: see ``end``."""
        turn = self.end(planned, report, member, drift, partial(_reach_of, planned))
        if self.trouble is not None:
            _log.warning("%s", self.trouble, extra={ABOUT: "shortfall"})
        if self._run is not None and local is not None:
            local.write(_encoded(self._run, turn))

    @property
    def trouble(self) -> str | None:
        """``shortfall`` as a sentence."""
        return None if self.shortfall is None else _text_of(self.shortfall)


def _reach_of(planned: Plan) -> Millis | None:
    """Return the reach of a plan; none where the system does not answer by now: the batch is planned all the same."""
    try:
        return planned.reach()
    except SourceError as error:
        _log.debug("how far the next batch will surely come could not be looked up: %s", error)
        return None


def _text_of(short: Shortfall) -> str:
    reach = f"this source had published that its batch reaches {watermark_text(short.reach)}"
    if short.reached <= FIRST:
        return f"{reach}, and does not know the event times of all rows that are to be read; {short.ahead} went ahead"
    return (
        f"{reach}, and it reaches {watermark_text(short.reached)}: {short.ahead} is ahead by "
        f"{format_duration(short.lead - short.reached)}, more than alignmentMaxDrift, and waits in the next batch"
    )


def _encoded(run: str, turn: Turn) -> str:
    def as_list(report: GroupMember) -> list[str | int | None]:
        return [report.status.value, report.watermark]

    return json.dumps([run, *turn], ensure_ascii=False, default=as_list)


def turns_of(run: str, texts: list[str]) -> list[Turn]:
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
