"""The subject and the alternative names of an X.509 certificate, from its DER bytes.

`distinguished_name` returns the subject as Java's `X500Principal.getName()` does, so that ACLs and
`ssl.principal.mapping.rules` of Kafka match the same clients: RFC 2253, the most specific name first, and only the
keywords of that RFC. Any other attribute is written as its object identifier with the value in hexadecimal.

The certificate was verified before, so that its encoding can be trusted; broken bytes raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# PrintableString, UTF8String, T61String, IA5String, GeneralString, BMPString, UniversalString.
_TEXTS: Final = frozenset({0x13, 0x0C, 0x14, 0x16, 0x1B, 0x1E, 0x1C})
_ESCAPED: Final = ',=+<>#;"\\'
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_VERSION, _EXTENSIONS = 0xA0, 0xA3


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in RFC 2253 form."""
    names = [
        "+".join(_attribute(*_parts(value)) for _, value, _ in _children(relative))
        for _, relative, _ in _children(_subject(certificate))
    ]
    return ",".join(reversed(names))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return the alternative names of the subject, each in its encoding."""
    for tag, content, _ in _children(_fields(certificate)):
        if tag != _EXTENSIONS:
            continue
        ((_, extensions, _),) = _children(content)
        for _, extension, _ in _children(extensions):
            parts = list(_children(extension))
            if parts and _identifier(parts[0][1]) == _ALTERNATIVE_NAMES:
                ((_, names, _),) = _children(parts[-1][1])
                return frozenset(encoded for _, _, encoded in _children(names))
    return frozenset()


def _fields(certificate: bytes) -> bytes:
    """The signed part of the certificate."""
    ((_, outer, _),) = _children(certificate)
    for _, content, _ in _children(outer):
        return content
    raise ValueError("the certificate is empty")


def _subject(certificate: bytes) -> bytes:
    # The fields: version (optional), serial number, algorithm, issuer, validity, subject.
    fields = [content for tag, content, _ in _children(_fields(certificate)) if tag != _VERSION]
    if len(fields) < 5:
        raise ValueError("the certificate has no subject")
    return fields[4]


def _children(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Return (tag, content, whole encoding) of each element."""
    position = 0
    while position < len(data):
        start, position = position, position + 2
        if position > len(data):
            raise ValueError("the encoding of the certificate ends early")
        length = data[position - 1]
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise ValueError("the encoding of the certificate ends early")
        yield data[start], data[position:end], data[start:end]
        position = end


def _parts(attribute: bytes) -> tuple[str, int, bytes, bytes]:
    """Return (identifier, tag, content, whole encoding of the value) of an attribute."""
    (_, identifier, _), (tag, content, whole) = _children(attribute)
    return _identifier(identifier), tag, content, whole


def _identifier(content: bytes) -> str:
    if not content or content[-1] & 0x80:
        raise ValueError("the certificate has a broken object identifier")
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _attribute(identifier: str, tag: int, content: bytes, whole: bytes) -> str:
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or identifier}=#{whole.hex()}"
    # Java decodes every kind of text as UTF-8, too.
    text = content.decode("utf-8", "replace")
    inner = text.strip(" \r")
    escaped = "".join("\\00" if mark == "\0" else f"\\{mark}" if mark in _ESCAPED else mark for mark in inner)
    if not inner:
        return f"{keyword}=" + "".join(f"\\{blank}" for blank in text)
    before, _, after = text.partition(inner)
    return (
        f"{keyword}=" + "".join(f"\\{blank}" for blank in before) + escaped + "".join(f"\\{blank}" for blank in after)
    )
