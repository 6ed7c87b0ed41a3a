"""DescribeUserScramCredentials (50) shows which SCRAM credentials users have, not the secrets. KIP-554."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    """Asks about users; null means all."""

    users: list[UserName] | None = []


class UserName(Struct):
    """An element of `DescribeUserScramCredentialsRequest.users`."""

    name: str = ""


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    """Mechanisms and iterations per user."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class DescribeUserScramCredentialsResult(Struct):
    """An element of `DescribeUserScramCredentialsResponse.results`."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class CredentialInfo(Struct):
    """An element of `DescribeUserScramCredentialsResult.credential_infos`."""

    mechanism: Int8 = 0
    iterations: Int32 = 0
