"""Which small faults ``make mutants`` puts into code, and that none is put into what is no code."""

from __future__ import annotations

import ast

import pytest

from tests.soak.mutants.faults import faults_of, with_fault

NO_CODE = '''
"""A text."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from a import b
def f(a: int = None, *b: Literal[1]) -> "None":
    """Another."""
    raise ValueError(f"{a + 1}")
'''


@pytest.mark.parametrize(
    ("code", "faulty"),
    [
        ("a < b", ["a <= b"]),
        ("a and b and c", ["b and c", "a and c", "a and b", "a or b or c"]),
        ("x = 5", ["x = 6", "x = 4"]),
        ("x = max(a, b)", ["x = min(a, b)"]),
        ("x = a if b else c", ["x = a", "x = c"]),
        ("x += y", ["pass", "x -= y"]),
        ("if a:\n    b", ["pass"]),
        ("x = f(a, b=c)", ["x = f(a)"]),
        ("x = zip(a, b, strict=True)", []),
        ("x = {a for a in b if c}", ["x = {a for a in b}"]),
        (NO_CODE, []),
    ],
)
def test_faults_are_small_and_all_of_them_are_found(code: str, faulty: list[str]) -> None:
    assert [ast.unparse(with_fault(code, fault)) for fault in faults_of(code)] == faulty
