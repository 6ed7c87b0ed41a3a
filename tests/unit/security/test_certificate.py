"""Distinguished names and mapping rules: Java 21 and stock Kafka 4.3 returned the expected values."""

from __future__ import annotations

import contextlib
import datetime as dt
import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type as Asn1
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.certificate import alternative_names, distinguished_name
from ottla.security.principal_rules import NoMatchingRule, PrincipalRules

CN, ORG, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
OWN = ObjectIdentifier("1.3.6.1.4.1.55555.7.300")
KEY = ec.generate_private_key(ec.SECP256R1())

Attribute = tuple[ObjectIdentifier, str] | tuple[ObjectIdentifier, str, Asn1]


def certificate(*relative_names: list[Attribute], alternatives: tuple[str, ...] = ()) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an attribute of an unusual length
        names = [
            x509.RelativeDistinguishedName(
                [
                    x509.NameAttribute(
                        each[0], each[1], each[2] if len(each) == 3 else Asn1.UTF8String, _validate=False
                    )
                    for each in relative
                ]
            )
            for relative in relative_names
        ]
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.Name([]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=1))
    )
    if alternatives:
        found = x509.SubjectAlternativeName([x509.DNSName(each) for each in alternatives])
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(found, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [[(NameOID.COUNTRY_NAME, "DE", Asn1.PrintableString)], [(ORG, "Acme, Inc.")], [(CN, "alice")]],
            r"CN=alice,O=Acme\, Inc.,C=DE",
        ),
        ([[(CN, 'al+ice<x>#;"\\=')]], r"CN=al\+ice\<x\>\#\;\"\\\="),
        (
            [[(CN, "  lead trail  ")], [(NameOID.DOMAIN_COMPONENT, "com", Asn1.IA5String)], [(NameOID.USER_ID, "u1")]],
            r"UID=u1,DC=com,CN=\ \ lead trail\ \ ",
        ),
        (
            [[(NameOID.EMAIL_ADDRESS, "a@b.c", Asn1.IA5String)], [(CN, "#hash")]],
            r"CN=\#hash,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                [(CN, "multi"), (OU, "ou")],
                [(NameOID.SERIAL_NUMBER, "123", Asn1.PrintableString)],
                [(NameOID.STATE_OR_PROVINCE_NAME, "Île-de-France")],
            ],
            "ST=Île-de-France,2.5.4.5=#1303313233,OU=ou+CN=multi",
        ),
        (
            [
                [(NameOID.STREET_ADDRESS, "1 Rd")],
                [(NameOID.LOCALITY_NAME, "Zürich")],
                [(NameOID.TITLE, "Dr")],
                [(NameOID.GIVEN_NAME, "G")],
                [(OWN, "x")],
            ],
            "1.3.6.1.4.1.55555.7.300=#0c0178,2.5.4.42=#0c0147,2.5.4.12=#0c024472,L=Zürich,STREET=1 Rd",
        ),
        ([[(CN, "tab\there")]], "CN=tab\there"),
        ([[(CN, "nul\0x")]], r"CN=nul\00x"),
        ([[(CN, " ")]], r"CN=\ "),
        ([[(CN, "bmp", Asn1.BMPString)]], r"CN=\00b\00m\00p"),
        ([[(CN, "日本 名")], [(CN, "second")]], "CN=second,CN=日本 名"),
        ([[(CN, "line\n")]], "CN=line\n"),
        ([[(CN, "")]], "CN="),
        ([[(CN, "\u00a0nb\u3000")]], "CN=\u00a0nb\u3000"),
        ([], ""),
    ],
)
def test_distinguished_name_is_written_as_java_does(names: list[list[Attribute]], expected: str) -> None:
    assert distinguished_name(certificate(*names)) == expected


def test_alternative_names_are_compared_by_their_encoding() -> None:
    assert alternative_names(certificate([(CN, "a")], alternatives=("a", "b"))) == {b"\x82\x01a", b"\x82\x01b"}
    assert alternative_names(certificate([(CN, "a")])) == frozenset()


WHOLE = certificate([(CN, "a")], [(ORG, "Acme"), (OU, "x")], alternatives=("a", "b"))


@pytest.mark.parametrize("broken", [b"", b"\x30", b"\x30\x05\x30", b"\x30\x02\x30\x00"])
def test_broken_certificate_is_a_value_error(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"certificate|unpack"):
        distinguished_name(broken)


@given(position=st.integers(0, 200), value=st.integers(0, 255), length=st.integers(0, 400))
def test_damaged_certificate_raises_nothing_but_value_errors(position: int, value: int, length: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[position] = value
    for parse in (distinguished_name, alternative_names):
        with contextlib.suppress(ValueError):
            parse(bytes(damaged[:length]))
        with contextlib.suppress(ValueError):
            parse(bytes(damaged))


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=serviceuser,OU=ServiceUsers,O=Unknown", "serviceuser"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", "CN=AdminUser,OU=Admin,O=Unknown,C=Z", "adminuser@admin"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "O=x,CN=Kafka.Host,OU=z", "kafka.host"),
        ("RULE:^CN=(.*?)$/$1@$4/U , DEFAULT", "CN=ab", "AB@$4"),
        ("RULE:^CN=(.*?)$/$12/", "CN=ab", "ab2"),
        ("RULE:.*/x/", "CN=ab", "xx"),
        ("RULE:^CN=(?<user>[a-z]+).*/${user}/U", "CN=bob,O=x", "BOB"),
        (r"RULE:^CN=a\/b.*/x\/y\\z/", "CN=a/b,O=q", r"x/y\z"),
        (r"RULE:^CN=(.*)/a\$1/", "CN=ab", "a$1"),
        ("RULE:^CN=(a)|(CN=b)/$1$2/", "CN=b", "CN=b"),
        ("DEFAULT,RULE:^x/y/", "q", "q"),
        (r"RULE:^CN=(.*?),O=Acme\\, Inc\.$/$1/", r"CN=z,O=Acme\, Inc.", "z"),
        ("RULE:^CN=([a-z]+).*/$1/,RULE:^O=(.*)/org-$1/U", "O=acme", "ORG-ACME"),
        ("RULE:(CN=.*)/$0-$1/", "CN=x", "CN=x-CN=x"),
    ],
)
def test_rules_map_names_as_kafka_does(rules: str, name: str, expected: str) -> None:
    assert PrincipalRules(rules).name(name) == expected


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("RULE:x/y/LU", "Invalid rule: `RULE:x/y/LU`, unmatched substring: `U`"),
        ("foo", "Invalid rule: `foo`, unmatched substring: `foo`"),
        ("RULE:x", "Invalid rule: `RULE:x`, unmatched substring: `RULE:x`"),
        ("RULE:(/y/", "is not a regular expression"),
    ],
)
def test_invalid_rule_is_refused(rules: str, words: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule") as caught:
        PrincipalRules(rules)
    assert words in str(caught.value)


@pytest.mark.parametrize("rules", ["RULE:^nomatch$/x/", "", "RULE:CN/x/"])
def test_name_without_a_rule_is_refused(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match="No rules apply to CN=x"):
        PrincipalRules(rules).name("CN=x")
