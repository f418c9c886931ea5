"""Which of several ways leads to a server's program: PATH, or a distribution's packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from services.errors import ServiceError

_Program = TypeVar("_Program")


def first_that_works(
    ways: Iterable[Callable[[], _Program]], use: Callable[[_Program], None], *, wanted: str
) -> tuple[_Program, Sequence[str]]:
    """Return the first program that is there and can be used, and why those before it could not.

    ``wanted`` names the server in the error.

    Raises:
        ServiceError: there is none; a way raises it too, and ``use``, of a program that does not work.
    """
    refusals: list[str] = []
    for get in ways:
        try:
            program = get()
            use(program)
        except ServiceError as refused:  # noqa: PERF203 - a handful of ways
            refusals.append(str(refused))
        else:
            return program, refusals
    raise ServiceError(
        f"{wanted} cannot be had: install it so that its server is on PATH, or start a container engine. Tried:\n"
        + "\n".join(refusals)
    )
