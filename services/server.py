"""A server, wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Server(ABC):
    """What callers use of a server, and what each kind of server provides."""

    _port: int
    _start_seconds: float
    _stop_seconds: float

    @property
    def host(self) -> str:
        """Loopback, unless its kind runs elsewhere."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The same after every restart."""
        return self._port

    @abstractmethod
    def start(self) -> None:
        """Start it unless it runs, and return when it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it in an orderly way; its data stays."""

    def restart(self) -> None:
        """``stop``, then ``start``: same port, same data."""
        self.stop()
        self.start()

    @property
    @abstractmethod
    def _kind(self) -> str:
        """What it is called in errors."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether it does."""
