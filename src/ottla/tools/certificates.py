"""A certificate authority of one cluster, and the certificates that it issues, as PEM text. Needs `ottla[security]`.

Keys are on the curve P-256. A node's certificate identifies the node as a server and as a client; the certificate of a
client is not valid for a server. Names and addresses of a node are alternative names, which clients compare with the
host that they connect to.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.common.failure import Failure

LONGEST_NAME: Final = 64
# A certificate is valid from some time before it is issued: the clocks of the machines may differ.
_BEFORE: Final = dt.timedelta(hours=1)


class Issued(NamedTuple):
    """A private key and its certificate in PEM. The key is not encrypted."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return f"Issued(certificate of {len(self.certificate)} characters)"


def create_authority(name: str, now: dt.datetime, days: int) -> Issued:
    """Create an authority, whose certificate is signed with its own key. It cannot issue other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, key, now, days).issuer_name(subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    return _signed(builder, key, key)


def issue(authority: Issued, name: str, hosts: Sequence[str], now: dt.datetime, days: int) -> Issued:
    """Issue the certificate of a node with these host names and addresses, or of a client without any.

    Raises Failure for a name or host that a certificate cannot contain.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_key = load_pem_private_key(authority.key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "the authority was created by another program"
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), key, now, days).issuer_name(issuer.subject)
    roles = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        roles.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_alternative(each) for each in hosts])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(roles), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    return _signed(builder, key, issuer_key)


def _name(name: str) -> x509.Name:
    if not 0 < len(name) <= LONGEST_NAME:
        raise Failure(f"the name {name!r} of a certificate must have 1 to {LONGEST_NAME} characters", exit_code=2)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode())
    except ValueError as error:
        raise Failure(f"{host!r} is not a host name or address: {error}", exit_code=2) from error


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> Issued:
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    certificate = builder.add_extension(issuer_id, critical=False).sign(issuer_key, hashes.SHA256())
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(text.decode(), certificate.public_bytes(Encoding.PEM).decode())
