"""`--add-scram` of the format command: credentials, and errors without secrets."""

from __future__ import annotations

import base64

import pytest

from ottla.cluster.first_credentials import SALT_BYTES, first_credentials
from ottla.log.storage import StorageError
from ottla.metadata.features import METADATA_VERSION, SCRAM_FROM, default_levels
from ottla.protocol.metadata_records import UserScramCredentialRecord
from ottla.security import scram

SALT = b"a salt of some bytes"
IN_BASE64 = base64.b64encode(SALT).decode()


def credentials(*arguments: str, level: int | None = None) -> list[UserScramCredentialRecord]:
    levels = default_levels() if level is None else {METADATA_VERSION: level}
    return first_credentials(arguments, levels, bytes)


def expected(mechanism: str, name: str, password: str, salt: bytes, iterations: int) -> UserScramCredentialRecord:
    salted = scram.salted_password(mechanism, password, salt, iterations)
    credential = scram.derive(mechanism, salted, salt, iterations)
    return UserScramCredentialRecord(
        name, scram.NUMBERS[mechanism], salt, credential.stored_key, credential.server_key, iterations
    )


def test_credentials_of_passwords() -> None:
    assert credentials("SCRAM-SHA-256=[name=alice,password=a=b]") == [
        expected("SCRAM-SHA-256", "alice", "a=b", bytes(SALT_BYTES), 4096)
    ]
    given = f' SCRAM-SHA-512=[name="bob",password="secret",salt="{IN_BASE64}",iterations=8192] '
    assert credentials(given) == [expected("SCRAM-SHA-512", "bob", "secret", SALT, 8192)]


def test_credential_of_a_salted_password() -> None:
    salted = scram.salted_password("SCRAM-SHA-256", "secret", SALT, 5000)
    text = base64.b64encode(salted).decode()
    assert credentials(f"SCRAM-SHA-256=[name=a,saltedpassword={text},salt={IN_BASE64},iterations=5000]") == [
        expected("SCRAM-SHA-256", "a", "secret", SALT, 5000)
    ]


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("hush", "Failed to find equals sign"),
        ("SCRAM-SHA-1=[name=a,password=hush]", "The add-scram mechanism SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=name=a,password=hush]", r"start with \["),
        ("SCRAM-SHA-256=[name=a,password=hush", r"end with \]"),
        ("SCRAM-SHA-256=[name=a,hush]", "No equals sign"),
        ("SCRAM-SHA-256=[password=hush]", "You must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=hush!,salt=aHVzaA==]", "Failed to decode given saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=hush,salt=hush!]", "Failed to decode given salt: it is not base64"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=many]", "Failed to parse iterations count: many"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=4095]", "must be >= 4096 for add-scram using SCRAM-SHA-256"),
        ("SCRAM-SHA-512=[name=a,password=hush,iterations=16385]", "must be <= 16384 for add-scram using SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[name=a,password=hush,owner=hush]", "Unknown SCRAM configurations: owner"),
        ("SCRAM-SHA-256=[name=a,password=hush,saltedpassword=hush]", "Unknown SCRAM configurations: saltedpassword"),
    ],
)
def test_invalid_argument(argument: str, problem: str) -> None:
    with pytest.raises(StorageError, match=problem) as error:
        credentials(argument)
    assert "hush" not in str(error.value)


def test_levels_before_3_5_have_no_credentials() -> None:
    with pytest.raises(StorageError, match=r"SCRAM is only supported in metadata.version 3.5-IV2 or later"):
        credentials("SCRAM-SHA-256=[name=a,password=b]", level=SCRAM_FROM - 1)
    assert credentials("SCRAM-SHA-256=[name=a,password=b]", level=SCRAM_FROM)
    assert credentials(level=SCRAM_FROM - 1) == []
