"""Tables with primary keys of many kinds, and their keys as statements have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.mysql_program import Flavour


@dataclass(frozen=True)
class Keys:
    """A primary key of some columns; ``literals`` has the values of the number of a row."""

    declared: tuple[str, ...]
    """Name and type of each column."""
    literals: Callable[[int], tuple[str, ...]]
    flavour: Flavour | None = None
    """Which server has such a key; ``None`` is any."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.split()[0] for each in self.declared)

    def create(self, table: str) -> str:
        columns = ", ".join(f"{each} NOT NULL" for each in self.declared)
        return (
            f"CREATE TABLE {table} ({columns}, name VARCHAR(40), amount BIGINT, PRIMARY KEY ({', '.join(self.names)}))"
        )

    def values(self, number: int) -> str:
        return ", ".join(self.literals(number))

    def equal(self, number: int, between: str = " AND ") -> str:
        """Return that the key is a number's, or what sets it to that."""
        return between.join(f"{n} = {v}" for n, v in zip(self.names, self.literals(number), strict=True))


INTEGER = Keys(("id INT",), lambda n: (str(n),))

_LETTERS = "aAbBáÁàzZßsS_- é"


def _word(number: int) -> str:
    """Short words of letters that many collations treat as equal."""
    letters = [_LETTERS[number % 16], _LETTERS[number // 16 % 16], _LETTERS[number // 256 % 16]]
    return "'" + "".join(letters).rstrip() + f"{number // 4096 or ''}'"


def _collated(collation: str, flavour: Flavour | None = None) -> Keys:
    charset = collation.partition("_")[0]
    return Keys((f"word VARCHAR(20) CHARACTER SET {charset} COLLATE {collation}",), lambda n: (_word(n),), flavour)


def _moment(number: int) -> str:
    return f"2024-05-07 12:{number % 60:02}:{number // 60 % 60:02}"


KINDS = {
    "one number": Keys(("number MEDIUMINT",), lambda n: (str(n - 300),)),
    "two columns": Keys(("shop INT", "number BIGINT UNSIGNED"), lambda n: (str(n % 7 - 3), str(2**63 + n // 7))),
    "text and number": Keys(("region VARCHAR(9)", "number INT"), lambda n: (_word(n % 40), str(n // 40))),
    "three columns": Keys(
        ("born DATE", "code BINARY(4)", "price DECIMAL(9,2)"),
        lambda n: (f"'2024-01-{n % 9 + 1:02}'", f"x'{n // 9 % 50:08x}'", f"{n // 450 - 1}.{n % 100:02}"),
    ),
    "0900_ai_ci": _collated("utf8mb4_0900_ai_ci", Flavour.MYSQL),
    "0900_as_cs": _collated("utf8mb4_0900_as_cs", Flavour.MYSQL),
    "uca1400_ai_ci": _collated("utf8mb4_uca1400_ai_ci", Flavour.MARIADB),
    "latin1_german2_ci": _collated("latin1_german2_ci"),
    "utf8mb4_bin": _collated("utf8mb4_bin"),
    # Of characters that have other codes too.
    "cp932_bin": Keys(
        ("word VARCHAR(9) CHARACTER SET cp932 COLLATE cp932_bin",), lambda n: (f"'{'≒∪ﾊ漢￢a'[n % 6]}{n // 6}'",)
    ),
    "CHAR of utf16": Keys(
        ("word CHAR(8) CHARACTER SET utf16 COLLATE utf16_unicode_ci",), lambda n: (_word(n),)
    ),
    "long text": Keys(
        ("word VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",),
        lambda n: (f"CONCAT('{n}', REPEAT('é', 650))",),
    ),
    "uuid": Keys(("uuid BINARY(16)",), lambda n: (f"x'{(n * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128:032x}'",)),
    "VARBINARY": Keys(("code VARBINARY(8)",), lambda n: (f"x'{n:x}'" if len(f"{n:x}") % 2 == 0 else f"x'0{n:x}00'",)),
    "DECIMAL": Keys(("price DECIMAL(38,10)",), lambda n: (f"{n - 500}12345678901234567890.{n % 100:010}",)),
    "DATETIME(6)": Keys(("at DATETIME(6)",), lambda n: (f"'{_moment(n)}.{n:06}'",)),
    "ENUM": Keys(
        # Its labels sort by their places, not as texts.
        ("kind ENUM('z','Y','é','it''s','b\\\\c') CHARACTER SET latin1", "number INT"),
        lambda n: (str(n % 5 + 1), str(n // 5)),
    ),
    "SET": Keys(("flags SET('q','b','é','a','z','x','w','v','u','t')",), lambda n: (str(n * 37 % 1024),)),
    "SET of 64": Keys(
        (f"flags SET({','.join(repr(f'm{i}') for i in range(64))})",), lambda n: (f"{n} << 55 | {n % 7}",)
    ),
    "SET with an empty label": Keys(("flags SET('','b','c')", "number INT"), lambda n: (str(n % 8), str(n // 8))),
    "BIT(1)": Keys(("flag BIT", "number INT"), lambda n: (f"b'{n % 2}'", str(n // 2))),
    "BIT(60)": Keys(("flags BIT(60)",), lambda n: (str(n * 0x9E3779B97F4A7C15 % 2**60),)),
    "TIME(3)": Keys(("at TIME(3)",), lambda n: (f"'{'-' if n % 2 else ''}{n % 800}:{n % 60:02}:00.{n:03}'",)),
    "FLOAT": Keys(("size FLOAT",), lambda n: (f"CAST({n - 200}.1e{n % 5} AS FLOAT)",)),
    "DOUBLE": Keys(("size DOUBLE",), lambda n: (f"{n - 200}.123456789012345e{n % 300 - 150}",)),
    # Most are stored as other numbers than those they are shown as.
    "DOUBLE(10,2)": Keys(("size DOUBLE(10,2)",), lambda n: (f"{-n}.1e0",)),
    "TIMESTAMP(3)": Keys(("at TIMESTAMP(3)",), lambda n: (f"'{_moment(n)}.{n:03}'",)),
}  # fmt: skip
"""What primary keys are made of."""
