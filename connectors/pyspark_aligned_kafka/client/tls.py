"""TLS from PEM files or PEM texts, as a context that can be pickled to the executors."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from watermark_source.errors import OptionError

_HAS_FILES_IN_MEMORY = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Trusted certificates and the client's own. Each is a PEM file or text; by default the system's are trusted."""

    trusted_file: str | None = None
    trusted_text: str | None = None
    identity_file: str | None = None
    """Private key and certificate chain in one file, as Kafka's clients have it."""
    identity_chain: str | None = None
    identity_key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True


class TlsContext(ssl.SSLContext):
    """An ``SSLContext`` that is pickled as the ``Tls`` it was built from; files are read again where it arrives."""

    tls: Tls

    def __reduce__(self) -> tuple[object, ...]:
        return tls_context, (self.tls,)


def tls_context(tls: Tls) -> TlsContext:
    """Build the context: TLS 1.2 or later, certificates always verified.

    Raises:
        OptionError: a file or a text cannot be read; names the ``kafka.ssl.*`` option.
    """
    context = TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.tls = tls
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_hostname
    if tls.trusted_file is not None:
        with _naming("kafka.ssl.truststore.location", tls.trusted_file):
            context.load_verify_locations(cafile=tls.trusted_file)
    elif tls.trusted_text is not None:
        with _naming("kafka.ssl.truststore.certificates", "(PEM text)"):
            context.load_verify_locations(cadata=tls.trusted_text)
    else:
        context.load_default_certs()
    # An empty password keeps OpenSSL from asking for one on the terminal.
    password = tls.key_password or ""
    if tls.identity_file is not None:
        with _naming("kafka.ssl.keystore.location", tls.identity_file):
            context.load_cert_chain(tls.identity_file, password=password)
    elif tls.identity_chain is not None and tls.identity_key is not None:
        with (
            _naming("kafka.ssl.keystore.certificate.chain", "(PEM text)"),
            _as_file(tls.identity_key + "\n" + tls.identity_chain) as path,
        ):
            context.load_cert_chain(path, password=password)
    return context


@contextlib.contextmanager
def _naming(option: str, seen: str) -> Iterator[None]:
    try:
        yield
    # ssl.SSLError is an OSError; a wrong password or a broken PEM text may also be a ValueError, and a text that is not
    # ASCII a TypeError.
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(
            option,
            seen,
            f"cannot be used on this machine ({error}); must be readable PEM, and an encrypted key needs "
            "kafka.ssl.key.password. A JKS or PKCS12 store is converted with keytool or openssl",
            example="keytool -list -rfc -keystore store.jks > store.pem",
        ) from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    # OpenSSL's Python interface loads an identity from a file only. One in memory leaves nothing on a disk if this
    # process is killed now; mkstemp at least makes one that only this user may read.
    if _HAS_FILES_IN_MEMORY:
        handle = os.memfd_create("identity")
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            yield path
    finally:
        if not _HAS_FILES_IN_MEMORY:
            os.unlink(path)
