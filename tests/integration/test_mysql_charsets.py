"""Every character set: what the binlog states, decoded, is what the server shows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.character_sets import (
    NO_CHARACTER,
    check_charset,
    has_second_codes,
    point_of,
    tables_of,
    tables_of_keys,
)
from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.text_columns import texts
from services.mysql import MySql
from services.mysql_client import run
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_charsets import Shown, multi_byte_charsets, shown_by, single_byte_charsets
from tests.integration.mysql_lives import ALL, Life
from watermark_source.errors import UnsupportedFormatError

pytestmark = pytest.mark.service


def test_character_sets_of_one_byte_are_those_of_the_server(mysql: MySql) -> None:
    found = single_byte_charsets(mysql)
    assert {"latin1", "greek", "hebrew", "cp1256", "swe7", "tis620"} <= found.keys()
    every = Values(padded(bytes(range(256))), np.arange(256, dtype=np.int32), np.ones(256, np.int32))
    for charset, characters in found.items():
        assert texts(every, charset).to_pylist() == list(characters), charset
        check_first_codes(charset, shown_by(mysql, charset, (bytes((byte,)) for byte in range(256))))


def check_first_codes(charset: str, characters: Mapping[bytes, Shown]) -> None:
    """Check that exactly the codes that the server makes of a text are those that a key may have."""
    assert has_second_codes(charset) or all(each.is_first for each in characters.values()), charset
    if has_second_codes(charset):
        tables = tables_of_keys(charset)
        here = {code for code in characters if point_of(tables, code) != NO_CHARACTER}
        assert here == {code for code, each in characters.items() if each.is_first}, charset


def test_character_sets_of_several_bytes_are_those_of_the_server(mysql: MySql) -> None:
    seen = 0
    for charset, characters in multi_byte_charsets(mysql):
        none = {code for code in characters if point_of(tables_of(charset), code) == NO_CHARACTER}
        # Of bytes that no text has, MariaDB states that it knows no such character.
        assert {characters[code].text for code in none} <= {None, "?"}, charset
        shown = {code: each.text for code, each in characters.items() if code not in none}
        assert None not in shown.values(), charset
        sizes = np.array([len(code) for code in shown], np.int32)
        every = Values(padded(b"".join(shown)), (np.cumsum(sizes) - sizes).astype(np.int32), sizes)
        found = zip(shown, texts(every, charset).to_pylist(), shown.values(), strict=True)
        assert not [(code.hex(), here, there) for code, here, there in found if here != there], charset
        check_first_codes(charset, {code: each for code, each in characters.items() if code not in none})
        seen += len(shown)
    assert seen > 100_000


def test_every_character_set_of_the_server_is_read(mysql: MySql) -> None:
    names = run(mysql.host, mysql.port, "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    for (name,) in names:
        if name != "binary":
            check_charset(str(name), "here")


@pytest.mark.parametrize("option", [{"startingOffsets": "latest"}, {}])
def test_text_is_what_the_server_shows_or_refused_in_a_snapshot_and_in_the_binlog(
    mysql_database: Database, option: Mapping[str, str]
) -> None:
    """MariaDB stores any byte as ascii, and both servers half a surrogate pair as ucs2."""
    database = mysql_database
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, plain VARCHAR(9) CHARACTER SET ascii, wide TEXT CHARACTER SET ucs2)",
        "INSERT INTO t VALUES (0, '', '')",
    )
    life = Life(database, **option)
    start = life.reader.initialOffset()
    database.run("SET sql_mode = ''", "INSERT INTO t VALUES (1, x'61FF', 'é')")
    end = life.reader.latestOffset(start, ALL)
    ((shown,),) = database.run("SELECT plain FROM t WHERE id = 1")
    assert shown.startswith("a")
    assert [(row["plain"], row["wide"]) for row in life.rows(start, end) if row["id"]] == [(shown, "é")]
    database.run("INSERT INTO t VALUES (2, '', x'0061D800')")
    again = Life(database) if not option else life
    begin = again.reader.initialOffset() if not option else end
    with pytest.raises(UnsupportedFormatError, match=r"table .*[.]t column wide: text with half a surrogate pair"):
        again.rows(begin, again.reader.latestOffset(begin, ALL))
    for each in {life, again}:
        each.reader.stop()
