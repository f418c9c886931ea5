"""Virtual columns whose values depend on the time zone of a session, by the expressions that MySQL shows."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.lookup.generated_columns import ShownColumn, in_time_zone_of_session

_TABLE = (
    ShownColumn("id", "int", "", ""),
    ShownColumn("At", "timestamp", "on update CURRENT_TIMESTAMP", ""),
    ShownColumn("clock", "datetime", "", ""),
    ShownColumn("day", "varchar", "VIRTUAL GENERATED", "cast(`At` as char(10) charset utf8mb4)"),
    ShownColumn("kept", "varchar", "STORED GENERATED", "cast(`At` as char(10) charset utf8mb4)"),
)


@pytest.mark.parametrize(
    ("kind", "expression", "depends"),
    [
        ("varchar", "date_format(`At`,_utf8mb4\\'%Y\\')", True),
        ("datetime", "`At`", True),
        ("int", "year(`at`)", True),
        ("varchar", "concat(`day`,`id`)", True),
        ("timestamp", "`clock`", True),
        ("timestamp", "ifnull(`At`,`clock`)", True),
        ("datetime", "from_unixtime(`id`)", True),
        ("timestamp", "`At`", False),
        ("varchar", "concat(`kept`,`clock`,`id`)", False),
        ("datetime", "timestamp(`clock`)", False),
    ],
)
def test_an_expression_depends_on_the_time_zone_where_it_converts_a_timestamp(
    kind: str, expression: str, depends: bool
) -> None:
    found = in_time_zone_of_session([*_TABLE, ShownColumn("v", kind, "VIRTUAL GENERATED INVISIBLE", expression)])
    assert found == {"day", *(["v"] if depends else [])}
    assert in_time_zone_of_session([*_TABLE, ShownColumn("v", kind, "STORED GENERATED", expression)]) == {"day"}
