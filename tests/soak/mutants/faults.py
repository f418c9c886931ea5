"""Which small faults a file could have: each replaces or removes one node of its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_OTHER_OPERATOR: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SAFEGUARDS = {"strict"}
"""Keywords that only guard against faults elsewhere: ``zip(..., strict=True)``."""
_NO_CODE = {"annotation", "returns", "decorator_list", "bases", "type_comment"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it is, what is done, and how a tree of the file gets it."""

    line: int
    what: str
    number: int
    """Among all faults of the file; the same for the same text."""


def faults_of(text: str, *, without: Iterable[str] = ()) -> list[Fault]:
    """Every fault that a file could have outside of the functions ``without``, in the order of its lines.

    Raises:
        KeyError: the file has no such function.
    """
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    spared = {line for name in without for line in range(functions[name].lineno, _last_line(functions[name]) + 1)}
    changes = enumerate(_changes(tree))
    return [Fault(line, what, number) for number, (line, what, _) in changes if line not in spared]


def _last_line(node: ast.stmt) -> int:
    return node.lineno if node.end_lineno is None else node.end_lineno


def with_fault(text: str, fault: Fault) -> ast.Module:
    """Parse the file and put the fault in."""
    tree = ast.parse(text)
    _, _, put = next(change for number, change in enumerate(_changes(tree)) if number == fault.number)
    put()
    return ast.fix_missing_locations(tree)


_Change = tuple[int, str, Callable[[], None]]


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for node in _code_within(tree):
        for name, value in ast.iter_fields(node):
            for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if name in _NO_CODE or not isinstance(child, ast.AST) or _is_no_code(child):
                    continue
                for other in _instead_of(child):
                    line = getattr(child, "lineno", getattr(node, "lineno", 0))
                    yield line, f"{_shown(child)} -> {_shown(other)}", _putting(node, name, at, other)
        yield from _removals(node)


def _putting(node: ast.AST, name: str, at: int | None, other: ast.AST) -> Callable[[], None]:
    def put() -> None:
        if at is None:
            setattr(node, name, other)
        else:
            getattr(node, name)[at] = other

    return put


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node) if isinstance(node, (ast.expr, ast.stmt)) else type(node).__name__
    return " ".join(text.split())[:70]


def _code_within(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are code of ours that runs: no types, no docstrings, no texts for people, no safeguards."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in _NO_CODE:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_no_code(child):
                yield from _code_within(child)


def _is_no_code(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.keyword(arg=name) if name in _SAFEGUARDS:
            return True
    return False


def _instead_of(node: ast.AST) -> Iterator[ast.AST]:
    """What else could be written in a node's place."""
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.BoolOp(op=op, values=values):
            for left_out in range(len(values)):
                rest = [value for at, value in enumerate(values) if at != left_out]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.Call(func=ast.Name(id=name) as func, args=args, keywords=keywords) if name in _OTHER_FUNCTION:
            yield ast.Call(ast.Name(_OTHER_FUNCTION[func.id], ast.Load()), args, keywords)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            yield ast.Return(None)
        case ast.If(orelse=[]) | ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.If(body=body, orelse=orelse):
            yield from (ast.If(ast.Constant(True), body, orelse), ast.If(ast.Constant(False), body, orelse))
        case _ if type(node) in _OTHER_OPERATOR:
            yield _OTHER_OPERATOR[type(node)]()


def _removals(node: ast.AST) -> Iterator[_Change]:
    """What a node can do without: keyword arguments, conditions of comprehensions."""
    match node:
        case ast.Call(keywords=keywords, lineno=line):
            for at, keyword in enumerate(keywords):
                if keyword.arg is not None and keyword.arg not in _SAFEGUARDS:
                    yield line, f"without {keyword.arg}= in {_shown(node)}", _removing(keywords, at)
        case ast.comprehension(ifs=ifs):
            for at, condition in enumerate(ifs):
                yield condition.lineno, f"without the condition {_shown(condition)}", _removing(ifs, at)


def _removing(items: list[ast.keyword] | list[ast.expr], at: int) -> Callable[[], None]:
    def remove() -> None:
        del items[at]

    return remove
