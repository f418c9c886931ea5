"""How long a query waits for the store of its alignment group, and for those it meets there. All in seconds."""

from __future__ import annotations

ONE_CALL = 5
"""A server has so long for a connection, and again for every statement."""
CUT_AFTER = ONE_CALL + 1
"""No call takes longer: a server that can is given the time to say that it takes too long."""
BUSY_FILE = 2.0
"""SQLite waits so long for another writer."""

SHORTEST, LONGEST = 0.1, 1.0
"""Between two statements: while something moves or somebody waits, and at rest or after trouble."""
EASE, MOST_EASE = 4, 2.0
"""A statement that takes long is followed by a pause so many times as long, and of so many seconds at most: a store
that is busy is asked less."""
FIRST_ANSWER = 10.0
"""The first plan of a process waits so long for the first answer."""
LEAVING = 1.0

SILENT_AFTER = 3.0
"""A store that has not answered for so long counts as one that does not answer."""
SETTLING = 0.4
"""From the first word until what is known is sure: those that start together hear of each other by then."""
COMING = 10.0
"""Those that start together wait so long for one that has come, and has not planned yet."""
LATE_SETTLING = LONGEST + CUT_AFTER
"""Until what is known is sure when the store was away meanwhile: who cannot reach it either tries again so soon."""
