"""Where words, names, texts and remarks of a statement begin and end."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.sql_scanner import (
    NAME,
    NUMBER,
    PLAIN,
    SIGN,
    TEXT,
    WORD,
    Dialect,
    Token,
    UnfollowedError,
    tokens,
)

ANSI = PLAIN._replace(ansi_quotes=True)
RAW = PLAIN._replace(backslash_escapes=False)
MARIADB = PLAIN._replace(mariadb=True)
_KINDS = {WORD: "", NAME: "n:", TEXT: "t:", NUMBER: "#:", SIGN: ""}


def shown(text: str, dialect: Dialect = PLAIN) -> str:
    """Return the tokens of a statement: words and signs as they are, others with what they are."""
    return " ".join(_KINDS[each.kind] + each.text for each in tokens(text, dialect))


@pytest.mark.parametrize(
    "text",
    [
        "a--\nb", "a --\tc\nb", "a --\x01 c\nb", "a --\x7f\nb", "a # c\nb", "a/* c */b", "a /**/ b", "a/*c*/ /*/ d */b",
        "/* don't */ a /* it's */ b -- 'c", "a b --", "a b #", "a b-- \n/* */", "a\v\f\r\nb",
    ],
)  # fmt: skip
def test_remarks_and_blanks_only_divide(text: str) -> None:
    assert shown(text) == "a b"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a --b", "a - - b"), ("a - -b", "a - - b"), ("a--1", "a - - #:1"), ("a---- \nb", "a - - b"),
        ("a/b*/c", "a / b * / c"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_remark_is_signs(text: str, read: str) -> None:
    assert shown(text) == read


@pytest.mark.parametrize(
    ("text", "mysql", "mariadb"),
    [
        ("a /*!50100 b */ c", "a b c", "a b c"),
        ("a /*!b*/c", "a b c", "a b c"),
        ("a /*!801001b */", "a n:1b", "a b"),
        ("a /*!080001 b */", "a b", "a b"),
        ("/*!50100 a /* b */ c */ d", "a c d", "a c d"),
        ("/*!50100 a /*!50100 b */ c", "a b c", "a b c"),
        ("/*!50100 '*/' */", "t:*/", "t:*/"),
        ("a /*M!100100 b */", "a", "a b"),
        ("a /*M! b */", "a", "a b"),
        ("a /* 999999 b (* c *) */", "a", "a"),
        ("a /*! -- c */\nb */", "a b", "a b"),
    ],
)
def test_remarks_that_are_executed_count(text: str, mysql: str, mariadb: str) -> None:
    assert shown(text) == mysql
    assert shown(text, MARIADB) == mariadb


@pytest.mark.parametrize(
    ("text", "dialect", "read"),
    [
        (r"'a\'b' c", PLAIN, r"t:a\'b c"),
        (r"'C:\' c", RAW, "t:C:\\ c"),
        ("'it''s'", PLAIN, "t:it''s"),
        ('"a" c', PLAIN, "t:a c"),
        ('"a" c', ANSI, "n:a c"),
        ('"a""b"', ANSI, 'n:a"b'),
        ('"a\\" c', ANSI, "n:a\\ c"),
        ("`a``b`c`d`", PLAIN, "n:a`b c n:d"),
        ("`-- /*`", PLAIN, "n:-- /*"),
        ("N'a' x'41' _utf8mb4'b'", PLAIN, "N t:a x t:41 _utf8mb4 t:b"),
    ],
)
def test_quotes_enclose_by_the_mode_of_the_session(text: str, dialect: Dialect, read: str) -> None:
    assert shown(text, dialect) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("तालिका €° a\u200db \u0301", "n:तालिका n:€° n:a\u200db n:\u0301"),
        ("a$1 _b 2020_c 1e5d", "a$1 _b n:2020_c #:1e5 d"),
        ("1 1.5 .5 1e+3 0x1F 0b01 0xg 1.x", "#:1 #:1.5 #:.5 #:1e+3 #:0x1F #:0b01 n:0xg #:1. x"),
        ("a.rename.1b", "n:a . n:rename . n:1b"),
        ("`a`.rename", "n:a . n:rename"),
        ("a . b", "a . b"),
        ("rename .t", "rename . n:t"),
        ("root@localhost root@10.0.0.1 'a'@'b' @@x", "root @ n:localhost root @ n:10.0.0.1 t:a @ t:b @ @ n:x"),
    ],
)
def test_names_are_distinguished_from_keywords_and_numbers(text: str, read: str) -> None:
    assert shown(text) == read


def test_a_blank_and_a_control_character_are_those_of_the_character_set() -> None:
    latin1 = PLAIN._replace(spaces=PLAIN.spaces + "\xa0")
    assert shown("a\xa0b --\xa0c\nd", latin1) == "a b d"
    assert shown("a\xa0b") == "n:a\xa0b"


@pytest.mark.parametrize(
    "text",
    ["a 'b", 'a "b', "a `b", "a /* b", "a /*! b", "/*! a /* b */", "a \0b", "a -- \0b", "a --\ufffd", "`a\0b`",
     "`a\ufffd`",
     "a --\0b", "$$ a $$", r"'a\'", "$a$ b"],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused(text: str) -> None:
    with pytest.raises(UnfollowedError):
        list(tokens(text))


@pytest.mark.parametrize("text", ["/* 99999 x(*/ GRANT *) */ TRUNCATE t", "/*M 999999 (*/ SET *) */ TRUNCATE t"])
def test_a_comment_for_a_later_version_whose_end_is_not_logged_is_refused(text: str) -> None:
    with pytest.raises(UnfollowedError, match=r"/\*/"):
        list(tokens(text))
    assert shown("/* 99999 x (* y *) */ a /* b(*/") == "a"


def test_a_backslash_before_a_letter_whose_second_byte_may_be_one_is_refused() -> None:
    assert shown(r"'\誠'") == r"t:\誠"
    with pytest.raises(UnfollowedError, match="a backslash precedes a character of several bytes"):
        list(tokens(r"'\誠'", PLAIN._replace(trails=True)))


def test_a_token_that_was_read_is_there_before_a_later_one_is_looked_at() -> None:
    assert next(tokens("GRANT 'has no end")) == Token(WORD, "GRANT")
