"""The ssl settings of a client or node as an ssl.SSLContext, checked before the first connection.

Files are PEM, or PKCS12 if the package `cryptography` is installed. An unreadable file, a key without its certificate
or another format is a SecuritySettingError with the setting and the remedy. For Java's key stores the message contains
the command that converts them.

`options` has the client settings by their Python names (see `clients.options.SECURITY_OPTIONS`).
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ottla.network.errors import SecuritySettingError

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_STORES: Final = ("PEM", "JKS", "PKCS12")


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Build the context of a client for these settings; reads files. Raises SecuritySettingError."""
    given = options["ssl_context"]
    if given is not None:
        if not isinstance(given, ssl.SSLContext):
            raise SecuritySettingError(f"ssl.context is a {type(given).__name__}; it must be an ssl.SSLContext")
        return given
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    algorithm = options["ssl_endpoint_identification_algorithm"].lower()
    if algorithm not in {"", "https"}:
        raise SecuritySettingError(
            f"ssl.endpoint.identification.algorithm is {algorithm!r}; it must be https, or empty for no check"
        )
    context.check_hostname = algorithm == "https"
    if not options["enable_ssl_certificate_verification"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    trust(context, options)
    identify(context, options)
    return context


def trust(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    """Load the configured certificate authorities, by default the system's. Raises SecuritySettingError."""
    location, text = options["ssl_truststore_location"], options["ssl_truststore_certificates"]
    password = options["ssl_truststore_password"]
    kind = _kind("truststore", location, options["ssl_truststore_type"])
    if location and text:
        raise SecuritySettingError("ssl.truststore.location and ssl.truststore.certificates are both set: choose one")
    if kind == "PKCS12":
        where = f"ssl.truststore.location {location!r}"
        certificates = "".join(_read_pkcs12("truststore", str(location), password)[1])
        _load_authorities(context, where, cadata=certificates)
        return
    if password is not None:
        raise SecuritySettingError(
            f"ssl.truststore.password is set, but PEM has none. {_conversion('truststore', location)}"
        )
    if text:
        _load_authorities(context, "ssl.truststore.certificates", cadata=_normal_pem(text))
    elif location and Path(location).is_dir():
        context.load_verify_locations(capath=location)
    elif location:
        _check_readable("ssl.truststore.location", location)
        _load_authorities(context, f"ssl.truststore.location {location!r}", cafile=location)
    else:
        context.load_default_certs()


def _load_authorities(context: ssl.SSLContext, where: str, **what: str) -> None:
    try:
        context.load_verify_locations(**what)
    except (ssl.SSLError, ValueError) as error:
        raise SecuritySettingError(f"{where} holds no PEM certificates that can be read ({_reason(error)})") from error


def identify(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    """Load the own key and certificates, if they are set. Raises SecuritySettingError."""
    store, chain, key = (options[f"ssl_keystore_{name}"] for name in ("location", "certificate_chain", "key"))
    chain_file, key_file = options["ssl_certificate_location"], options["ssl_key_location"]
    kind = _kind("keystore", store, options["ssl_keystore_type"])
    if kind != "PKCS12" and options["ssl_keystore_password"] is not None:
        raise SecuritySettingError(
            "ssl.keystore.password is set, but PEM has only ssl.key.password, for the key. "
            + _conversion("keystore", store)
        )
    ways = {
        "ssl.keystore.location": store,
        "ssl.keystore.certificate.chain": chain,
        "ssl.certificate.location": chain_file,
    }
    chosen = [name for name, value in ways.items() if value]
    if len(chosen) > 1:
        raise SecuritySettingError(f"{' and '.join(chosen)} are both set: choose one")
    password = options["ssl_key_password"]
    if not chosen:
        for name, value in (("ssl.keystore.key", key), ("ssl.key.location", key_file)):
            if value:
                raise SecuritySettingError(f"{name} is set, but not the certificate that goes with it")
        return
    if chain and not (key or key_file):
        raise SecuritySettingError("ssl.keystore.certificate.chain is set, but not ssl.keystore.key, its private key")
    for name, path in (*ways.items(), ("ssl.key.location", key_file)):
        if path and name.endswith("location"):
            _check_readable(name, path)
    if kind == "PKCS12":
        store_key, certificates = _read_pkcs12("keystore", str(store), options["ssl_keystore_password"])
        if store_key is None:
            raise SecuritySettingError(f"ssl.keystore.location {store!r} holds no private key")
        chain, key, password = "".join(certificates), store_key, None
    with contextlib.ExitStack() as files:
        cert_path = files.enter_context(_as_file(chain)) if chain else (store or chain_file)
        key_path = files.enter_context(_as_file(key)) if key else key_file
        given = ways[chosen[0]]
        name = chosen[0] if given == chain else f"{chosen[0]} {given!r}"
        _load_chain(context, name, cert_path, key_path, password)


def _load_chain(context: ssl.SSLContext, name: str, cert: str, key: str | None, password: str | None) -> None:
    was_asked = False

    def ask() -> str:
        nonlocal was_asked
        was_asked = True
        # Without a password function OpenSSL would prompt at the terminal.
        if password is None:
            raise SecuritySettingError("The private key is encrypted: set ssl.key.password")
        return password

    try:
        context.load_cert_chain(cert, key, password=ask)
    except ssl.SSLError as error:
        reason = _reason(error)
        if "KEY_VALUES_MISMATCH" in reason:
            what = "and the private key do not belong together"
        elif was_asked:
            what = "comes with a private key that ssl.key.password does not open"
        else:
            what = f"holds no PEM certificate with its private key that can be read ({reason})"
        raise SecuritySettingError(f"{name} {what}") from error


@contextlib.contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Return the path of a file with this text, which OpenSSL needs; in memory where the system can do that."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "w") as file:
            file.write(_normal_pem(pem))
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    import tempfile  # noqa: PLC0415 - it imports random and shutil, and few systems need it

    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(_normal_pem(pem))
        yield path
    finally:
        Path(path).unlink()


def _read_pkcs12(store: str, path: str, password: str | None) -> tuple[str | None, list[str]]:
    """Return (private key, certificates) of a file as PEM; the certificate of the key is first."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - optional
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError as error:
        raise SecuritySettingError(
            f"ssl.{store}.location {path!r} is PKCS12, which needs the package cryptography: pip install "
            f"'ottla[security]', or convert it. {_conversion(store, path, 'PKCS12')}"
        ) from error
    try:
        found = pkcs12.load_pkcs12(Path(path).read_bytes(), None if password is None else password.encode())
    except ValueError as error:
        raise SecuritySettingError(
            f"ssl.{store}.location {path!r} cannot be read as PKCS12: ssl.{store}.password does not open it, or the "
            "file is damaged"
        ) from error
    first = [] if found.cert is None else [found.cert]
    certificates = [
        each.certificate.public_bytes(serialization.Encoding.PEM).decode() for each in (*first, *found.additional_certs)
    ]
    if found.key is None:
        return None, certificates
    plain = serialization.NoEncryption()
    key = found.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return key.decode(), certificates


def _normal_pem(text: str) -> str:
    """Restore the line breaks of PEM text, which a properties file may have removed."""

    def block(match: re.Match[str]) -> str:
        label, body = match.groups()
        if "\n" not in body.strip():
            body = "\n" + "\n".join(body.split()) + "\n"
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"

    return _PEM_BLOCK.sub(block, text.replace("\\n", "\n"))


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise SecuritySettingError(f"{name} {path!r} cannot be read: {error.strerror}") from error


def _kind(store: str, location: str | None, kind: str) -> str:
    """Return PEM or PKCS12, from the first bytes of the file or from the setting. Raises SecuritySettingError."""
    name = kind.upper()
    if name not in _STORES:
        raise SecuritySettingError(f"ssl.{store}.type is {kind!r}; it must be PEM or PKCS12")
    if location and Path(location).is_file():
        _check_readable(f"ssl.{store}.location", location)
        with Path(location).open("rb") as file:
            start = file.read(4)
        name = "JKS" if start in _JKS else "PKCS12" if start[:1] == b"\x30" else "PEM"
    elif location:
        name = "PEM"  # A directory of authorities, or a file whose absence is reported with its path.
    if name == "JKS" or (name == "PKCS12" and not location):
        where = f"ssl.{store}.location {location!r}" if location else f"ssl.{store}.type"
        raise SecuritySettingError(f"{where} is {name}; Ottla reads PEM. {_conversion(store, location, name)}")
    return name


def _conversion(store: str, location: str | None, kind: str = "JKS") -> str:
    path = location or f"{store}.{'p12' if kind == 'PKCS12' else 'jks'}"
    pem = Path(path).with_suffix(".pem")
    if store == "truststore":
        return f"Convert it: keytool -list -rfc -keystore {path} > {pem}"
    if kind == "PKCS12":
        return f"Convert it: openssl pkcs12 -in {path} -nodes -out {pem}"
    p12 = Path(path).with_suffix(".p12")
    return (
        f"Convert it: keytool -importkeystore -srckeystore {path} -destkeystore {p12} -deststoretype PKCS12 && "
        f"openssl pkcs12 -in {p12} -nodes -out {pem}"
    )
