"""One list of checks, gone through in two ways: until the first that fails, or all of them."""

from __future__ import annotations

import pytest

from watermark_source.checks import Caution, Check, CheckVerdict, examine, require
from watermark_source.errors import RefusedError, UnreachableError


def fails(_: list[str]) -> str:
    raise RefusedError("no")


def asked(name: str) -> Check[list[str]]:
    def look(looked: list[str]) -> str:
        looked.append(name)
        return "fine"

    return Check(name, look)


def test_load_stops_at_the_first_that_fails_and_leaves_advice_out() -> None:
    looked: list[str] = []
    advice = Check("advice", fails, at_load=False)
    with pytest.raises(RefusedError, match="no"):
        require([asked("a"), advice, asked("b"), Check("bad", fails), asked("c")], looked)
    assert looked == ["a", "b"]


def test_all_are_examined_but_those_that_need_what_failed() -> None:
    looked: list[str] = []
    checks = [
        asked("a"),
        Check("login", fails),
        Check("rights", asked("rights").run, after=("a", "login")),
        Check("table", asked("table").run, after=("rights",)),
        asked("b"),
        Check("tls", lambda _: Caution("not used"), at_load=False),
    ]
    found = list(examine(checks, looked))
    assert [f.verdict for f in found] == [
        CheckVerdict.OK, CheckVerdict.FAILED, CheckVerdict.SKIPPED, CheckVerdict.SKIPPED, CheckVerdict.OK,
        CheckVerdict.WARNING,
    ]  # fmt: skip
    assert looked == ["a", "b"]
    # The cause, not the next in the chain.
    assert found[3].text == "needs login, which failed"
    assert found[5].text == "not used"


def test_a_doubt_lets_what_comes_after_it_be_looked_at() -> None:
    def unreachable(_: list[str]) -> str:
        raise UnreachableError("gone")

    checks = [Check("key", lambda _: Caution("none")), Check("after", unreachable, after=("key",))]
    assert [(f.name, f.verdict, f.text) for f in require(checks[:1], [])] == [("key", CheckVerdict.WARNING, "none")]
    assert [(f.verdict, f.text) for f in examine(checks, [])][1] == (CheckVerdict.FAILED, "gone")


def test_a_bug_is_not_taken_for_a_finding() -> None:
    def broken(_: list[str]) -> str:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        list(examine([Check("x", broken)], []))
