"""Where tokens for OAUTHBEARER come from, as the user's settings state it."""

from __future__ import annotations

import base64
import urllib.parse
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where tokens come from: an endpoint with the client's login, or a file that another program renews."""

    url: str = field(repr=False)
    """It may hold a secret, as in ``?code=``."""
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    encodes_login: bool = False
    """Whether id and secret are form-encoded in the header, as RFC 6749 (2.3.1) requires."""
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    trusted_file: str | None = None
    """File of the CA certificates for the endpoint; ``None`` for the system's."""
    limit_s: float = 10.0

    @property
    def place(self) -> str:
        """The URL without its secrets, for messages."""
        url = urllib.parse.urlsplit(self.url)
        return urllib.parse.urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path, "", ""))

    @property
    def login(self) -> str:
        """The id and secret as encoded in a header."""
        parts = [self.client_id or "", self.client_secret or ""]
        if self.encodes_login:
            parts = [urllib.parse.quote_plus(part) for part in parts]
        return base64.b64encode(":".join(parts).encode()).decode()
