"""A checkpoint's positions belong to the server they were made on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.mysql import mysql_pair
from tests.integration.mysql_binlog import new_database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from watermark_source.errors import OffsetError

pytestmark = pytest.mark.service


def test_a_checkpoint_of_one_server_is_refused_by_its_replica() -> None:
    with mysql_pair() as pair, new_database(pair.source) as database:
        make_user(pair.source, USER, *RIGHTS)
        database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)")
        here = Life(database, startingOffsets="latest")
        offset = here.reader.initialOffset()
        pair.wait_until_replica_has_all()
        there = Life(replace(database, server=pair.replica), startingOffsets="latest")
        assert there.reader.initialOffset()["system"] != offset["system"]
        with pytest.raises(OffsetError, match="where they mean nothing"):
            there.reader.latestOffset(offset, ALL)
        database.run("INSERT INTO t VALUES (1, 'one', 1)")
        end = here.reader.latestOffset(offset, ALL)
        assert [change[2] for change in here.changes(offset, end)] == ["insert"]
        here.reader.stop()
        there.reader.stop()
