"""Time limits of a source towards the store and the other members of its alignment group, in seconds."""

from __future__ import annotations

ONE_CALL = 5
"""Time limit of a connection attempt, and of each statement, which the database's driver enforces."""
CUT_AFTER = ONE_CALL + 1
"""Time limit of any call, which we enforce: one second more, so that a server reports its own time-out first."""
BUSY_FILE = 2.0
"""SQLite waits this long for another process's write lock."""

SHORTEST, LONGEST = 0.1, 1.0
"""Interval between two statements: the shortest while splits wait or a report changed, the longest at rest and after
an error."""
EASE, MOST_EASE = 4, 2.0
"""The pause after a statement is ``EASE`` times its duration, at most ``MOST_EASE``: a busy store gets fewer
statements."""
FIRST_ANSWER = 10.0
"""The first plan of a process waits this long for the store's first answer."""
LEAVING = 1.0
"""A source that stops waits this long for its last report to be written."""

SILENT_AFTER = 3.0
"""A store counts as silent this long after its last answer."""
SETTLING = 0.4
"""From a member's first report until it relies on the store's answers: members that start together appear by then."""
COMING = 10.0
"""Members that start together wait this long for a member that has joined and not yet planned."""
LATE_SETTLING = LONGEST + CUT_AFTER
"""Settling time after an outage of the store: every member that could not reach it has tried again by then."""
