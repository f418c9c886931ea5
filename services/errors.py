"""The one error of this package: a server or something it needs could not be had."""

from __future__ import annotations


class ServiceError(RuntimeError):
    """A service cannot start, answer or stop; the message has what was tried, what was seen and what to do."""
