"""Databases for the store: a file, and real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from services.mysql import MySql
from services.mysql_client import run
from services.postgres import Postgres, url_of
from tests.unit.group_store.clients import make
from watermark_source.group_store.database import database_of
from watermark_source.group_store.server_database import METADATA
from watermark_source.group_store.store import GroupStore

__all__ = ["make"]


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """A database without the table."""
    url = url_of(postgres)
    yield url
    _drop(url)


@pytest.fixture
def mysql_url(mysql: MySql) -> Iterator[str]:
    run(mysql.host, mysql.port, "CREATE DATABASE IF NOT EXISTS alignment")
    url = f"mysql+pymysql://root@{mysql.host}:{mysql.port}/alignment"
    yield url
    _drop(url)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.service),
        pytest.param("mysql", marks=pytest.mark.service),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind: one that writes and reports at once, two of them, and one that needs several statements."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'alignment.sqlite'}"
    found: str = request.getfixturevalue("postgres_url" if request.param == "postgresql" else "mysql_url")
    return found


@pytest.fixture
def store(url: str) -> Iterator[GroupStore]:
    made = GroupStore(database_of(url))
    yield made
    made.close()


def _drop(url: str) -> None:
    engine = create_engine(url)
    METADATA.drop_all(engine)
    engine.dispose()
