"""SCRAM credentials: the records of AlterUserScramCredentials, and the oldest level that has them."""

from __future__ import annotations

import hashlib
import hmac

from ottla.common.errors import ErrorCode
from ottla.metadata.features import METADATA_VERSION, SCRAM_FROM
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.metadata_records import FeatureLevelRecord, UserScramCredentialRecord

from .support import Cluster

SALTED = b"salted password"
SET = AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion("alice", 2, 8192, b"salt", SALTED)])


def test_record_has_only_derived_keys() -> None:
    """RFC 5802: the stored key is the hash of the client key, the server key an HMAC."""
    cluster = Cluster()
    cluster.do(cluster.controller.alter_user_scram_credentials(SET))
    (record,) = cluster.controller.image.scram_credentials.values()
    client_key = hmac.digest(SALTED, b"Client Key", "sha512")
    assert record == UserScramCredentialRecord(
        name="alice",
        mechanism=2,
        salt=b"salt",
        stored_key=hashlib.sha512(client_key).digest(),
        server_key=hmac.digest(SALTED, b"Server Key", "sha512"),
        iterations=8192,
    )
    assert SALTED not in b"".join(bytes(part) for part in [record.encode(0)])


def test_credential_is_replaced_and_deleted() -> None:
    cluster = Cluster()
    again = AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion("alice", 2, 9000, b"s", b"p")])
    for request in (SET, again):
        cluster.do(cluster.controller.alter_user_scram_credentials(request))
    assert [each.iterations for each in cluster.controller.image.scram_credentials.values()] == [9000]
    deletion = AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 2)])
    cluster.do(cluster.controller.alter_user_scram_credentials(deletion))
    assert not cluster.controller.image.scram_credentials


def test_levels_before_3_5_have_no_credentials() -> None:
    cluster = Cluster()
    for level, code in ((SCRAM_FROM - 1, ErrorCode.UNSUPPORTED_VERSION), (SCRAM_FROM, ErrorCode.NONE)):
        record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
        cluster.controller.replay([record], cluster.controller.image.offset + 1, 1)
        response = cluster.do(cluster.controller.alter_user_scram_credentials(SET))
        assert [result.error_code for result in response.results] == [code]
