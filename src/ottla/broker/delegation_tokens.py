"""The delegation tokens of the cluster on one node: log-ins by token, and the deletion of expired tokens. KIP-48.

The metadata log has the tokens, and each node computes their HMACs and SCRAM credentials from the secret key. A
credential is computed at the first log-in by its token, since that takes milliseconds, and cached.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.common.errors import KafkaError
from ottla.controller.delegation_tokens import USER
from ottla.controller.state import secret_key
from ottla.security.delegation_token import SecretKey, TokensByHmac, credential_of
from ottla.security.scram import Account, Credential

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.clock import Clock
    from ottla.common.completion import Completion
    from ottla.config import BrokerConfig
    from ottla.protocol.metadata_records import DelegationTokenRecord

logger = logging.getLogger(__name__)

SALT_BYTES: Final = 16


class DelegationTokens:
    """The tokens in the latest image."""

    def __init__(self, key: SecretKey, metadata: MetadataShell, clock: Clock) -> None:
        self._hmacs: TokensByHmac[DelegationTokenRecord] = TokensByHmac(key)
        self._metadata = metadata
        self._clock = clock
        self._credentials: dict[tuple[str, str], Credential] = {}
        self._followed: Mapping[str, DelegationTokenRecord] = {}

    @classmethod
    def from_config(cls, config: BrokerConfig, metadata: MetadataShell, clock: Clock) -> DelegationTokens | None:
        """Return the tokens, or None without `delegation.token.secret.key`."""
        key = secret_key(config)
        return None if key is None else cls(key, metadata, clock)

    @property
    def records(self) -> Mapping[str, DelegationTokenRecord]:
        """All tokens by id, including expired ones that the controller has not deleted yet."""
        return self._metadata.image.delegation_tokens

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token: a secret."""
        return self._hmacs.hmac_of(token_id)

    def account(self, mechanism: str, token_id: str) -> Account | None:
        """Return the credential, owner and expiry of a token for a log-in; None if it is unknown or has expired.

        The owner of a token may have another type than User, but no client logs in as another type.
        """
        records = self.records
        if records is not self._followed:
            self._forget_deleted(records)
        record = records.get(token_id)
        if record is None:
            return None
        expires_at_ms = min(record.expiration_timestamp, record.max_timestamp)
        kind, _, owner = record.owner.partition(":")
        if expires_at_ms <= self._clock.wall_ms() or kind != USER:
            return None
        key = mechanism, token_id
        credential = self._credentials.get(key)
        if credential is None:
            salt = secrets.token_bytes(SALT_BYTES)
            credential = self._credentials[key] = credential_of(mechanism, self.hmac_of(token_id), salt)
        return Account(credential, owner, expires_at_ms)

    def delete_expired(self) -> None:
        """Delete expired tokens if this node is the active controller."""

        def decided(done: Completion[bool]) -> None:
            try:
                again = done.result()
            except KafkaError as error:
                logger.info("Failed to delete expired delegation tokens: %s", error)
                return
            if again:
                self.delete_expired()

        if self._metadata.is_active_controller:
            now_ms = self._clock.wall_ms()
            self._metadata.submit(lambda controller: controller.delete_expired_tokens(now_ms)).on_done(decided)

    def _forget_deleted(self, records: Mapping[str, DelegationTokenRecord]) -> None:
        """Remove the credentials of deleted tokens: once for each change, so that log-ins of strangers cost little."""
        self._followed = records
        for key in [key for key in self._credentials if key[1] not in records]:
            del self._credentials[key]
