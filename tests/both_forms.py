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
    for package in ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm"):
        assert built_library.is_there(package), f"{package} has no machine code of these sources: make decoders"
    CompiledFunction.make = _make_both  # type: ignore[assignment, method-assign]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"both forms of {len(_calls)} functions agreed in {_calls.total()} calls")


def _make_both(function: CompiledFunction) -> None:
    of, signature = function.function, function.signature
    built = built_library.function(of, signature)
    function._run = agreeing(compiler.made(of, signature), built, built_library.symbol(of))


def agreeing(one: Any, other: Any, name: str) -> Any:
    """Return a function that runs both, the second in the caller's memory, and compares them."""

    def run(*arguments: Any) -> Any:
        _calls[name] += 1
        copies = [each.copy() if isinstance(each, np.ndarray) and each.flags.writeable else each for each in arguments]
        expected, found = one(*copies), other(*arguments)
        assert found == expected, f"{name}: {found} in place of {expected}"
        for number, (mine, copy) in enumerate(zip(arguments, copies, strict=True)):
            if mine is not copy:
                assert mine.tobytes() == copy.tobytes(), f"{name}: argument {number} differs"
        return found

    return run
