"""What members JSON documents have, and what headers records have, for messages where a path or a name finds nothing.

Python reads documents whole.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql.types import DataType, StructType

from pyspark_aligned_kafka.records.json_path import JsonPath
from watermark_source.errors import listed, printable, shortened

_Names: TypeAlias = tuple[str, ...]
"""Of members within each other, from the outermost."""
_MOST_VALUES = 10_000
"""Values of a document that are searched for a name."""
_HIDDEN = "recordsInErrors=true shows their names"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_document(document: bytes) -> Any:
    """Return what a document holds; raises ``ValueError`` for text that is not JSON, or is nested too deep."""
    try:
        return json.loads(document)
    except RecursionError:
        raise ValueError from None


def end_of_path(document: bytes, path: JsonPath, *, with_names: bool) -> str:
    """Return the deepest value of a document that is on a path, and what it is.

    Args:
        document: one that has nothing at the path, or neither text nor number.
        path: the path.
        with_names: whether the names of members are shown, which are content of the record.

    Raises:
        ValueError: it is no JSON.
    """
    value, depth = read_document(document), 0
    for step in path.steps:
        is_there = step in value if isinstance(value, dict) else _has_element(value, step)
        if not is_there:
            break
        value, depth = value[step], depth + 1
    return f"{JsonPath(path.steps[:depth])} is {_described(value, with_names=with_names)}"


def headers_there(headers: Sequence[Mapping[str, Any]] | None, *, with_names: bool) -> str:
    """Return which headers a record has."""
    names = {each["key"] or "" for each in headers or ()}
    if not names:
        return "the record has none"
    return f"the record has {_named(names) if with_names else f'{len(names)} others ({_HIDDEN})'}"


def _has_element(value: Any, step: str | int) -> bool:
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def _described(value: Any, *, with_names: bool) -> str:
    if isinstance(value, dict):
        hidden = f"{len(value)} members ({_HIDDEN})"
        return f"an object with {(_named(value) if with_names else hidden) or 'no member'}"
    if isinstance(value, list):
        return f"an array of {len(value)} elements"
    if isinstance(value, str):
        return "a string"
    return json.dumps(value) if value is None or isinstance(value, bool) else "a number"


def _named(names: Iterable[str]) -> str:
    return listed(printable(shortened(name)) for name in names)


class Misplaced(NamedTuple):
    """Members of a schema that documents have elsewhere, or not at all."""

    missing: str
    """Names in the schema."""
    there: str
    """What the documents have, and what to write."""
    reads: str = "null"
    """What each row has in their place."""


def misplaced(documents: Sequence[bytes], schema: StructType) -> Misplaced | None:
    """Return which members a schema names where no document has any; ``None``: nothing is wrong.

    That is a schema of which no document has a member, or one with a member that all documents lack and some have in
    another place, or in other letters.
    """
    trees = []
    for document in documents:
        with suppress(ValueError):
            trees.append(read_document(document))
    trees = [tree for tree in trees if isinstance(tree, dict) and tree]
    leaves = dict(_leaves(schema, ()))
    missing = [path for path in leaves if not any(_has(tree, path) for tree in trees)]
    if not trees or not missing:
        return None
    places: dict[str, _Names] = {}
    for tree in trees:
        for path in _paths(tree):
            # What the schema names is decoded whole, such as a map.
            if not any(path[:length] in leaves for length in range(1, len(path) + 1)):
                places.setdefault(path[-1].lower(), path)
    found = {path: places[path[-1].lower()] for path in missing if path[-1].lower() in places}
    if len(missing) < len(leaves) and not found:
        return None
    names = listed(map(".".join, found if len(missing) < len(leaves) else missing))
    there = f"their members are {_named({name for tree in trees for name in tree})}"
    if found:
        there += f". Write {shortened(_ddl({place: leaves[path] for path, place in found.items()}))}"
    return Misplaced(names, there)


def _leaves(schema: StructType, within: _Names) -> Iterator[tuple[_Names, DataType]]:
    for field in schema.fields:
        path = (*within, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        else:
            yield path, field.dataType


def _has(tree: Any, path: _Names) -> bool:
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def _paths(tree: dict[str, Any]) -> Iterator[_Names]:
    """Yield the paths of a document's members, outer ones first."""
    level: list[tuple[_Names, Any]] = [((), tree)]
    left = _MOST_VALUES
    while level and left > 0:
        level = [
            ((*path, name), value) for path, tree in level if isinstance(tree, dict) for name, value in tree.items()
        ]
        yield from (path for path, _ in level[:left])
        left -= len(level)


def _ddl(types: Mapping[_Names, DataType]) -> str:
    """Return members of a schema at these places."""
    inner = defaultdict[str, dict[_Names, DataType]](dict)
    written = []
    for path, kind in types.items():
        if len(path) == 1:
            written.append(f"{_quoted(path[0])} {kind.simpleString().upper()}")
        else:
            inner[path[0]][path[1:]] = kind
    return ", ".join([*written, *(f"{_quoted(name)} STRUCT<{_ddl(within)}>" for name, within in inner.items())])


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{printable(name).replace('`', '``')}`"
