"""AlterUserScramCredentials (51) sets or removes SCRAM credentials. KIP-554."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    """The credentials to delete and to set."""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class ScramCredentialDeletion(Struct):
    """An element of `AlterUserScramCredentialsRequest.deletions`."""

    name: str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    """An element of `AlterUserScramCredentialsRequest.upsertions`."""

    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    """The outcome per user."""

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []


class AlterUserScramCredentialsResult(Struct):
    """An element of `AlterUserScramCredentialsResponse.results`."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
