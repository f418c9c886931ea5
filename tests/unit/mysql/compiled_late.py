"""Compile the functions of a test when it calls them: compiled at import, each process that collects tests has to wait.

They are not kept between processes: what is kept follows the sources of the package that a function is in, and not by
those of the functions that it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from watermark_source.machine_code import compiler


def compiled_late(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for one signature at its first call."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        made = cache(lambda: compiler.dispatcher(function, signature))
        return lambda *arguments: made()(*arguments)

    return decorate
