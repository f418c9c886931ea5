"""Where the tokens of OAUTHBEARER come from."""

from __future__ import annotations

import base64
import urllib.parse
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where tokens come from: an endpoint and who asks it, or a file that somebody else keeps up."""

    url: str = field(repr=False)
    """May hold a secret beside the place, as ``?code=``."""
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    encodes_login: bool = False
    """Whether id and secret are form-encoded before they go into the header, as RFC 6749 (2.3.1) has it."""
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    trusted_file: str | None = None
    """Certificates that the endpoint's has to go back to; ``None``: the system's."""
    limit_s: float = 10.0

    @property
    def place(self) -> str:
        """Return the URL's part that may be shown."""
        url = urllib.parse.urlsplit(self.url)
        return urllib.parse.urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path, "", ""))

    @property
    def login(self) -> str:
        """Return the id and secret as a header has them."""
        parts = [self.client_id or "", self.client_secret or ""]
        if self.encodes_login:
            parts = [urllib.parse.quote_plus(part) for part in parts]
        return base64.b64encode(":".join(parts).encode()).decode()
