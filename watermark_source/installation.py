"""Which packages are installed, looked for without importing them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from watermark_source.errors import UsageError


def need(packages: Iterable[str], format_name: str, *, extra: str) -> None:
    """Say at once what an installation lacks: most of what a format needs is imported later, in other processes.

    Args:
        packages: what the format imports.
        format_name: the format.
        extra: what installs all of it.

    Raises:
        UsageError: one of the packages is not there.
    """
    missing = next((name for name in packages if find_spec(name) is None), None)
    if missing is not None:
        raise UsageError(
            f'format("{format_name}") needs the package {missing}, which is not installed where the driver runs; '
            f"install it with: pip install 'watermark-source[{extra}]'"
        )
