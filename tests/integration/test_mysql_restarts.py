"""A server that is restarted ends no query, and costs none of it a change."""

from __future__ import annotations

import pytest

from services.containers import Where
from services.mysql import mysql_service
from services.wait_until import wait_until
from tests.integration.mysql_binlog import new_database
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_delivered import Delivered, fill, held
from tests.integration.mysql_streams import RIGHTS, USER, MySqlStreams, make_user
from tests.integration.mysql_writers import writers

pytestmark = [pytest.mark.service, pytest.mark.timeout(1_800)]

_RESTARTS = 2
_SECONDS = 240


@pytest.mark.long("test_what_was_delivered_is_what_the_server_holds")
def test_restarts_lose_and_double_nothing(mysql_streams: MySqlStreams) -> None:
    with mysql_service(where=Where.LOCAL) as server, new_database(server) as database:
        make_user(server, USER, *RIGHTS)
        fill(database, rows=1_200)
        mysql_streams.database = database
        frame = mysql_streams.source(snapshotChunkRows=100, snapshotParallelism=2)
        with writers(database, "t", count=2, keys=2_400, pause=0.01):
            query = mysql_streams.start_file(frame, "all")
            for number in range(_RESTARTS):
                done = query.lastProgress["batchId"] if query.lastProgress else -1
                wait_until(lambda: (query.lastProgress or {"batchId": -1})["batchId"] > done + 1, _SECONDS, "batches")  # noqa: B023
                server.kill() if number % 2 else server.stop()
                server.start()
        query.processAllAvailable()
        assert query.isActive
        query.stop()
        found = copy_of(Delivered.of(mysql_streams, "all").rows)
        assert (found.lost, found.doubled) == (0, 0)
        assert found.table == held(database)
