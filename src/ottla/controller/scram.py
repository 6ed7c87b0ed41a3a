"""SCRAM credentials of users: set and deleted by AlterUserScramCredentials. KIP-554.

Each user appears once in a request, with one mechanism. The controller derives the stored keys from the salted password
that the client sends, so that the log has neither the password nor the salted password.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.features import SCRAM_FROM
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.security import scram

_MECHANISMS = {number: name for name, number in scram.NUMBERS.items()}


def alter(
    state: State, request: AlterUserScramCredentialsRequest
) -> Slices[Outcome[AlterUserScramCredentialsResponse]]:
    """Change the credentials of each user whose change is valid; the other users have an error each."""
    records: dict[str, Message] = {}
    errors: dict[str, KafkaError] = {}
    for changes in (request.deletions, request.upsertions):
        for change in changes:
            yield
            name = change.name
            if name in errors:
                continue
            try:
                if records.pop(name, None) is not None:
                    text = "A user credential cannot be altered twice in the same request"
                    refuse(ErrorCode.DUPLICATE_RESOURCE, text)
                records[name] = _record(state, change)
            except KafkaError as error:
                errors[name] = error
    check_size(records)
    results = [AlterUserScramCredentialsResult(name, ErrorCode.NONE, None) for name in records]
    results += [AlterUserScramCredentialsResult(name, error.code, error.message) for name, error in errors.items()]
    return Outcome([*records.values()], AlterUserScramCredentialsResponse(results=results))


def _record(state: State, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Message:
    """The record of a change; raises KafkaError if the change is invalid."""
    if state.image.metadata_version < SCRAM_FROM:
        refuse(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not change.name:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _MECHANISMS.get(change.mechanism)
    if mechanism is None:
        refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in state.image.scram_credentials:
            refuse(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return m.RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if change.iterations < scram.MIN_ITERATIONS:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > scram.MAX_STORED_ITERATIONS:
        refuse(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salted_password:
        # HMAC in Java has no empty key, so that Kafka fails without a message.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return credential_record(change.name, mechanism, change.salted_password, change.salt, change.iterations)


def credential_record(
    username: str, mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> m.UserScramCredentialRecord:
    """The record of a credential, with the keys that are derived from the salted password."""
    credential = scram.derive(mechanism, bytes(salted_password), bytes(salt), iterations)
    return m.UserScramCredentialRecord(
        name=username,
        mechanism=scram.NUMBERS[mechanism],
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=iterations,
    )
