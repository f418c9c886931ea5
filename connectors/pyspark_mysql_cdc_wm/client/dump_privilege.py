"""Whether a user may dump the binlog: it is asked for, without what reads it."""

from __future__ import annotations

import struct

import pymysql

from pyspark_mysql_cdc_wm.client.connection import NOT_UNDERSTOOD, connected
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.errors.server_errors import LOG_CANNOT_BE_READ, code_of, server_error

_DUMP = 0x12
# Position, flags (end at the end), server id, and no file: the oldest.
_ASKED = struct.pack("<IHI", 4, 1, 0)


def check_may_dump(settings: ClientSettings) -> None:
    """Ask for the binlog, and look at the first answer.

    Raises:
        RefusedError: the user may not.
        SourceError: the server cannot be reached.
    """
    connection = connected(settings)
    try:
        connection._execute_command(_DUMP, _ASKED)  # noqa: SLF001 - PyMySQL has no public name for it
        connection._read_packet()  # noqa: SLF001 - see above
    except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
        # What else is wrong with the binlog is told to those who may have it.
        if code_of(failure) != LOG_CANNOT_BE_READ:
            raise server_error(failure, settings.where, settings.username) from failure
    finally:
        connection._force_close()  # noqa: SLF001 - close() would wait for an answer
