"""``pytest -p tests.both_forms …``: each compiled function runs as numba's code and as built code, and both must agree.

They get the same arguments, and are compared by what they return and by every byte of every array that they may write
to. Built code must be there: ``make decoders``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from watermark_source.machine_code import built_library, compiler
from watermark_source.machine_code.native import CompiledFunction

_calls: Counter[str] = Counter()


def pytest_configure() -> None:
    CompiledFunction.make = _make_both  # type: ignore[assignment, method-assign]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"both forms of {len(_calls)} functions agreed in {_calls.total()} calls")


def _make_both(function: CompiledFunction) -> None:
    of, signature = function.function, function.signature
    built = built_library.function(of, signature)
    assert built is not None, f"{of.__module__} has no machine code of these sources: make decoders"
    function._run = agreeing(compiler.made(of, signature), built, built_library.symbol(of))


def agreeing(one: Any, other: Any, name: str) -> Any:
    """Return a function that runs both, one after the other in the caller's memory, and compares them.

    In the same memory, for a place in another array is kept as the distance to it.
    """

    def run(*arguments: Any) -> Any:
        _calls[name] += 1
        outputs = [each for each in arguments if isinstance(each, np.ndarray) and each.flags.writeable]
        before = [each.copy() for each in outputs]
        expected = one(*arguments)
        after = [each.copy() for each in outputs]
        for each, copy in zip(outputs, before, strict=True):
            each[...] = copy
        found = other(*arguments)
        assert found == expected, f"{name}: {found} in place of {expected}"
        for number, (each, copy) in enumerate(zip(outputs, after, strict=True)):
            assert each.tobytes() == copy.tobytes(), f"{name}: array {number} of those it may write to differs"
        return found

    return run
