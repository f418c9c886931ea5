"""What is complete of a table in real databases: in the transaction of its rows, by a driver and by SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text

from services.mysql_client import connect
from services.postgres import Postgres, url_of
from tests.integration.mysql_binlog import Database
from watermark_source import complete_until, publish_in
from watermark_source.errors import SourceError, UsageError
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.publishing.mark import Mark, moment_of

pytestmark = pytest.mark.service

NOON = 1_764_417_600_000


@pytest.fixture
def mysql_url(mysql_database: Database) -> str:
    server = mysql_database.server
    return f"mysql+pymysql://root@{server.host}:{server.port}/{mysql_database.name}"


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    url = url_of(postgres)
    yield url
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("DROP TABLE watermark_completeness, counts")


@pytest.fixture(params=["mysql_url", "postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = create_engine(url)
    yield made
    made.dispose()


def by_driver(engine: Engine) -> Any:
    """Return a connection of the driver's own."""
    url = engine.url
    if url.drivername.startswith("postgresql"):
        return psycopg.connect(str(url).replace("+psycopg", ""))
    assert url.host is not None
    assert url.port is not None
    return connect(url.host, url.port, database=url.database, autocommit=False)


def test_what_is_complete_is_committed_with_the_rows_or_not_at_all(engine: Engine, url: str) -> None:
    mark = Mark(writer="hourly", query=url, batch=3, watermark=Millis(NOON), checkpoint="file:/checkpoints/hourly")
    place = f"{url}#counts"
    with engine.begin() as connection, pytest.raises(SourceError, match="create it once: ") as refused:
        publish_in(connection, mark, "counts")
    create = str(refused.value).partition("create it once: ")[2]
    with engine.begin() as connection:
        for statement in (create, "CREATE TABLE counts (n BIGINT)"):
            connection.execute(text(statement))
    assert complete_until(place) is None
    with closing(by_driver(engine)) as connection:
        for finish, expected in ((connection.rollback, None), (connection.commit, NOON)):
            with closing(connection.cursor()) as cursor:
                cursor.execute("INSERT INTO counts VALUES (1)")
            publish_in(connection, mark, "counts")
            finish()
            assert complete_until(place) == moment_of(expected)
    # In autocommit mode the rows are committed by themselves, unless a transaction is begun for both.
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.begin() as connection, pytest.raises(UsageError, match="in autocommit mode, and no transaction is open"):
        publish_in(connection, replace(mark, watermark=MAX), "counts")
    with alone.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        publish_in(connection, mark, "counts")
        connection.exec_driver_sql("COMMIT")
    assert complete_until(place) == moment_of(NOON)
    # A batch without rows; and a lower time, which takes nothing back.
    for watermark, expected in ((NOON + 1, NOON + 1), (NOON, NOON + 1)):
        with engine.begin() as connection:
            publish_in(connection, replace(mark, watermark=Millis(watermark)), "counts")
        assert complete_until(place) == moment_of(expected)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM counts")).scalar() == 1
        publish_in(connection, replace(mark, query=f"{url} again", watermark=Millis(NOON + 2)), "counts")
    with engine.begin() as connection, pytest.raises(UsageError, match="another query has stated under this name"):
        publish_in(connection, replace(mark, batch=4), "counts")
    with engine.begin() as connection:
        publish_in(connection, replace(mark, query=f"{url} again", watermark=MAX), "counts")
    assert complete_until(place) == moment_of(MAX)
    with engine.begin() as connection, pytest.raises(UsageError, match="it writes no more"):
        publish_in(connection, mark, "counts")
