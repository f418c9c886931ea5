"""Every character set: what the binlog says, decoded, is what the server shows."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.character_sets import NO_CHARACTER, check_charset, point_of, tables_of
from pyspark_mysql_cdc_wm.records.text_columns import texts
from services.mysql import MySql
from services.mysql_client import run
from tests.integration.mysql_charsets import multi_byte_charsets, single_byte_charsets

pytestmark = pytest.mark.service


def test_character_sets_of_one_byte_are_those_of_the_server(mysql: MySql) -> None:
    found = single_byte_charsets(mysql)
    assert {"latin1", "greek", "hebrew", "cp1256", "swe7", "tis620"} <= found.keys()
    every = Values(padded(bytes(range(256))), np.arange(256, dtype=np.int32), np.ones(256, np.int32))
    for charset, characters in found.items():
        assert texts(every, charset).to_pylist() == list(characters), charset


def test_character_sets_of_several_bytes_are_those_of_the_server(mysql: MySql) -> None:
    seen = 0
    for charset, characters in multi_byte_charsets(mysql):
        none = {code for code in characters if point_of(tables_of(charset), code) == NO_CHARACTER}
        # Of bytes that no text has, MariaDB says that it knows no such character.
        assert {characters[code] for code in none} <= {None, "?"}, charset
        shown = {code: each for code, each in characters.items() if code not in none}
        assert None not in shown.values(), charset
        sizes = np.array([len(code) for code in shown], np.int32)
        every = Values(padded(b"".join(shown)), (np.cumsum(sizes) - sizes).astype(np.int32), sizes)
        found = zip(shown, texts(every, charset).to_pylist(), shown.values(), strict=True)
        assert not [(code.hex(), here, there) for code, here, there in found if here != there], charset
        seen += len(shown)
    assert seen > 100_000


def test_every_character_set_of_the_server_is_read(mysql: MySql) -> None:
    names = run(mysql.host, mysql.port, "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    for (name,) in names:
        if name != "binary":
            check_charset(str(name), "here")
