"""A user who may read some columns of a table: no others come, from the table or from the binlog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_flavours import each_flavour
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, make_user
from watermark_source.errors import RefusedError, UnknownSplitError, UnsupportedFormatError

pytestmark = pytest.mark.service

_DECLARED = "id INT, shop INT, n INT, secret TEXT, PRIMARY KEY (id, shop)"


def _made(database: Database, granted: str, declared: str = _DECLARED) -> None:
    database.run(f"CREATE TABLE t ({declared})", "INSERT INTO t (id, shop, n) VALUES (1, 0, 10)")
    others = [right for right in RIGHTS if not right.startswith("SELECT")]
    # What may be written is described to the user too.
    make_user(database.server, "some", *others, f"SELECT ({granted}), INSERT (secret) ON {database.name}.t")


def _rows(database: Database, **options: Any) -> list[dict[str, Any]]:
    life = Life(database, username="some", **options)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    rows = life.rows(start, end)
    database.run("UPDATE t SET n = 11, secret = 'sh'", "DELETE FROM t", "INSERT INTO t (id, shop, n) VALUES (1, 0, 10)")
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        rows += life.rows(start, end)
    life.reader.stop()
    return sorted(rows, key=lambda row: (not row["_snapshot"], row["_commit_version"], row["_change_number"]))


@pytest.mark.parametrize("invisible", ["", " INVISIBLE"])
@pytest.mark.parametrize("options", [{}, {"excludeColumns": "secret"}, {"excludeColumns": "secret,_database"}])
def test_columns_that_may_not_be_read_come_in_neither_phase(
    mysql_database: Database, options: dict[str, str], invisible: str, caplog: pytest.LogCaptureFixture
) -> None:
    _made(mysql_database, "id, shop, n", _DECLARED.replace("secret TEXT", f"secret TEXT{invisible}"))
    texts = [json.loads(row["_row"]) for row in _rows(mysql_database, rowFormat="json", **options)]
    assert [tuple(text) for text in texts] == [("id", "shop", "n")] * 5
    assert [text["n"] for text in texts] == [10, 10, 11, 11, 10]
    columns = _rows(mysql_database, **options)
    assert [row["n"] for row in columns] == [10, 10, 11, 11, 10]
    assert not any("secret" in row for row in columns)
    logged = "the user 'some' may read these columns alone, and the stream lacks the others. "
    (words,) = {record.getMessage() for record in caplog.records if logged in record.getMessage()}
    assert f"{logged}{mysql_database.name}.t: id, shop, n. For all of them, on the server: GRANT SELECT ON " in words


def test_a_unique_key_in_place_of_a_primary_one_needs_no_more(mysql_database: Database) -> None:
    _made(mysql_database, "id, shop, n", _DECLARED.replace("PRIMARY KEY (id, shop)", "UNIQUE KEY (id)").replace(
        "id INT", "id INT NOT NULL"
    ))  # fmt: skip
    assert [row["n"] for row in _rows(mysql_database)] == [10, 10, 11, 11, 10]


def test_a_key_of_which_a_column_may_not_be_read_is_refused(mysql_database: Database) -> None:
    _made(mysql_database, "id, n")
    for form in ("columns", "json"):
        with pytest.raises(
            UnsupportedFormatError,
            match=r"[.]t: the user 'some' may not read (shop|every column) of the primary key, .* GRANT SELECT ON",
        ):
            Life(mysql_database, username="some", rowFormat=form)


# Roles, of which the two servers know different things.


@pytest.fixture(scope="module", params=each_flavour(), ids=lambda flavour: flavour.value)
def either(request: pytest.FixtureRequest, mysql: MySql) -> Iterator[MySql]:
    if mysql.flavour is request.param:
        yield mysql
    else:
        with mysql_service(flavour=request.param, where=Where.LOCAL) as other:
            yield other


@pytest.fixture
def database(either: MySql) -> Iterator[Database]:
    with new_database(either) as made:
        yield made


_HIDDEN = _DECLARED.replace("secret TEXT", "secret TEXT INVISIBLE")


def _with_role(database: Database, *grants: str, own: tuple[str, ...] = ()) -> str:
    """Make a user with a role, and return the statement that makes the role active at each login."""
    database.run("DROP ROLE IF EXISTS reader", "CREATE ROLE reader", *(f"GRANT {grant} TO reader" for grant in grants))
    make_user(database.server, "some", "reader", *own)
    word = "TO" if database.server.flavour is Flavour.MYSQL else "FOR"
    return f"SET DEFAULT ROLE `reader` {word} 'some'@'%'"


def test_privileges_may_come_from_a_role(database: Database) -> None:
    _made(database, "id")
    database.run(_with_role(database, *RIGHTS))
    assert [row["n"] for row in _rows(database)] == [10, 10, 11, 11, 10]


def test_a_column_that_a_role_does_not_grant_comes_in_neither_phase(database: Database) -> None:
    _made(database, "id", _HIDDEN)
    others = [right for right in RIGHTS if not right.startswith("SELECT")]
    database.run(_with_role(database, *others, f"SELECT (id, shop, n), INSERT (secret) ON {database.name}.t"))
    texts = [json.loads(row["_row"]) for row in _rows(database, rowFormat="json")]
    assert [tuple(text) for text in texts] == [("id", "shop", "n")] * 5


def test_a_grant_for_columns_beside_one_for_the_table_restricts_nothing(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    _made(database, "id", _HIDDEN)
    database.run(_with_role(database, *RIGHTS, own=(f"SELECT (id), INSERT (secret) ON {database.name}.t",)))
    texts = [json.loads(row["_row"]) for row in _rows(database, rowFormat="json")]
    assert [tuple(text) for text in texts] == [("id", "shop", "n", "secret")] * 5
    assert "may read these columns alone" not in caplog.text


@pytest.mark.parametrize(
    ("own", "refusal"),
    [
        (("SELECT ON *.*",), RefusedError),
        (RIGHTS[1:], UnknownSplitError),
        ((*RIGHTS[1:], "INSERT ON {}.t"), RefusedError),
    ],
)  # fmt: skip
def test_a_role_that_is_not_active_is_named_with_the_statement(
    database: Database, own: tuple[str, ...], refusal: type[Exception]
) -> None:
    _made(database, "id")
    statement = _with_role(database, *RIGHTS, own=tuple(grant.format(database.name) for grant in own))
    with pytest.raises(
        refusal, match=r"The user has roles that are not active: reader\. .*: SET DEFAULT ROLE"
    ) as logged:
        Life(database, username="some")
    assert str(logged.value).endswith(statement)
    database.run(statement)
    assert [row["n"] for row in _rows(database)] == [10, 10, 11, 11, 10]
