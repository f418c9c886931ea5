"""TLS from PEM files and texts."""

from __future__ import annotations

import pickle
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from pyspark_aligned_kafka.client import settings
from pyspark_aligned_kafka.client.settings import ClientSettings, parse_settings, tls_context
from watermark_source.errors import OptionError

PEM = Path(__file__).parents[3] / "certificates"
CA, CLIENT, ENCRYPTED = PEM / "ca.pem", PEM / "client.pem", PEM / "client-encrypted.pem"
KEY_END = "-----END PRIVATE KEY-----\n"


def context_of(**given: str) -> ssl.SSLContext:
    """Return the context of settings ``ssl.*``, with an underscore for each dot."""
    return tls_context(with_tls({name.replace("_", "."): text for name, text in given.items()}).values)


def with_tls(given: Mapping[str, str]) -> ClientSettings:
    return parse_settings({
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        **{f"kafka.ssl.{name}": text for name, text in given.items()},
    })  # fmt: skip


def trusted(context: ssl.SSLContext) -> list[str]:
    return [
        str(dict(pair[0] for pair in cast(Any, entry["subject"]))["commonName"]) for entry in context.get_ca_certs()
    ]


def one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


def parts_of_the_client() -> tuple[str, str]:
    key, chain = CLIENT.read_text().split(KEY_END)
    return key + KEY_END, chain


@pytest.mark.parametrize("part", [{"truststore_location": str(CA)}, {"truststore_certificates": CA.read_text()}])
def test_only_what_is_given_is_trusted(part: dict[str, str]) -> None:
    assert trusted(context_of(**part)) == ["Test CA"]


def test_settings_that_were_pickled_make_the_same_context() -> None:
    given = {"truststore.certificates": CA.read_text(), "endpoint.identification.algorithm": ""}
    context = pickle.loads(pickle.dumps(with_tls(given))).client_configs()["ssl_context"]
    assert trusted(context) == ["Test CA"]
    assert context.check_hostname is False
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_an_encrypted_key_needs_its_password() -> None:
    context_of(keystore_location=str(ENCRYPTED), key_password="opensesame")
    for password in ({}, {"key_password": "wrong"}):
        with pytest.raises(OptionError, match=r"kafka\.ssl\.key\.password") as caught:
            context_of(keystore_location=str(ENCRYPTED), **password)
        assert caught.value.option == "kafka.ssl.keystore.location"


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_pem_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "store.jks"
    path.write_text(text)
    with pytest.raises(OptionError, match="keytool -list -rfc"):
        context_of(truststore_location=str(path))


@pytest.mark.parametrize("name", ["truststore.certificates", "keystore.key", "keystore.certificate.chain"])
def test_a_pem_text_that_is_not_ascii_is_refused(name: str) -> None:
    given = {"keystore.key": CLIENT.read_text(), "keystore.certificate.chain": CLIENT.read_text()}
    given = {**given, name: "-----BEGIN é-----"} if name in given else {name: "-----BEGIN é-----"}
    with pytest.raises(OptionError, match="cannot be used on this machine"):
        with_tls(given)


def test_a_file_that_is_not_there_is_refused_when_options_are_checked() -> None:
    given = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/no/such/ca.pem",
    }
    with pytest.raises(OptionError, match=r'kafka.ssl.truststore.location = "/no/such/ca.pem": cannot be used'):
        parse_settings(given)


@pytest.mark.parametrize("written", [str, one_line])
def test_pem_texts_may_be_on_one_line_as_in_a_property_file(written: type[str]) -> None:
    key, chain = parts_of_the_client()
    settings = parse_settings({
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.certificates": written(CA.read_text()),
        "kafka.ssl.keystore.key": written(key),
        "kafka.ssl.keystore.certificate.chain": written(chain),
    })  # fmt: skip
    assert trusted(settings.client_configs()["ssl_context"]) == ["Test CA"]
    # Not every OpenSSL reads lines of any length.
    assert settings.values["ssl.truststore.certificates"].strip().splitlines() == CA.read_text().strip().splitlines()
    assert key.splitlines()[1] not in repr(settings)


def test_where_files_can_lie_in_memory_the_private_key_never_lies_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    key, chain = parts_of_the_client()
    values = with_tls({"keystore.key": key, "keystore.certificate.chain": chain}).values
    on_disk: list[str] = []
    mkstemp = tempfile.mkstemp

    def noted(suffix: str) -> tuple[int, str]:
        made = mkstemp(suffix)
        on_disk.append(made[1])
        return made

    monkeypatch.setattr(tempfile, "mkstemp", noted)
    tls_context(values)
    assert len(on_disk) == (0 if settings._HAS_FILES_IN_MEMORY else 1)
    monkeypatch.setattr(settings, "_HAS_FILES_IN_MEMORY", False)
    on_disk.clear()
    tls_context(values)
    (path,) = on_disk
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.truststore.location": str(CA), "ssl.truststore.certificates": CA.read_text()}, "excludes"),
        ({"ssl.keystore.key": CLIENT.read_text()}, "because kafka.ssl.keystore.key is set"),
        ({"ssl.keystore.certificate.chain": CLIENT.read_text()}, "because kafka.ssl.keystore.certificate.chain is set"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_settings({
            "kafka.bootstrap.servers": "a:1",
            "kafka.security.protocol": "SSL",
            **{f"kafka.{name}": text for name, text in given.items()},
        })  # fmt: skip
