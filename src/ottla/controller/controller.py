"""`Controller`: the operations on the cluster's metadata, and the latest image.

The caller's duties, in this order:

1. `outcome = controller.create_topics(request)`
2. Append `outcome.records` as one batch.
3. `controller.replay(...)` with the appended records. Only this changes the image.
4. Send `outcome.response` once the batch is committed.

Operations see records that are appended but not committed yet, because later batches commit only after earlier ones.
An operation whose work grows with its request is a generator (see `common/slices.py`); the caller must finish it before
it starts another operation.

Errors of single topics, resources or partitions are in the response; KafkaError is raised for the request as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.common.slices import Slices, finish
from ottla.controller import brokers, features, late, leaders
from ottla.controller.rules import ConfigRules
from ottla.controller.state import ControllerSettings, Outcome, Permit, RandomSource, State, unlimited
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import NoOpRecord, RegisterBrokerRecord

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.controller.mirrors import SourceTopic
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
    from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from ottla.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from ottla.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from ottla.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from ottla.protocol.messages.controller_registration import (
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
    )
    from ottla.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from ottla.protocol.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from ottla.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from ottla.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from ottla.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from ottla.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from ottla.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )
    from ottla.protocol.messages.unregister_broker import UnregisterBrokerResponse
    from ottla.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from ottla.security.acl import Acl


class Controller:
    """Decides on all changes of the metadata."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        rules: ConfigRules,
        random: RandomSource,
        settings: ControllerSettings | None = None,
        image: MetadataImage = EMPTY_IMAGE,
    ) -> None:
        self._state = State(
            image=image,
            node_id=node_id,
            cluster_id=cluster_id,
            rules=rules,
            random=random,
            settings=settings or ControllerSettings(),
        )

    @property
    def image(self) -> MetadataImage:
        """The latest image, including records that are not committed yet."""
        return self._state.image

    def replay(self, records: Iterable[Message], last_offset: int, epoch: int) -> MetadataImage:
        """Apply appended records; returns the new image."""
        return finish(self.replay_in_slices(records, last_offset, epoch))

    def replay_in_slices(self, records: Iterable[Message], last_offset: int, epoch: int) -> Slices[MetadataImage]:
        """Apply appended records in slices; the image changes at the end."""
        delta = MetadataDelta(self._state.image)
        for record in records:
            delta.replay(record)
            if isinstance(record, RegisterBrokerRecord):
                self._state.sessions.note_registered(record.broker_id, last_offset)
            yield
        return self.load(delta.apply(last_offset, epoch))

    def load(self, image: MetadataImage, next_offset: int | None = None) -> MetadataImage:
        """Replace the image by one that was loaded from a snapshot and the log, which ends at `next_offset`."""
        self._state.image = image
        self._state.next_offset = image.offset + 1 if next_offset is None else next_offset
        return image

    # -- topics ------------------------------------------------------------------------------------------------

    def create_topics(
        self, request: CreateTopicsRequest, permit: Permit = unlimited
    ) -> Slices[Outcome[CreateTopicsResponse]]:
        """Create topics: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR and others each."""
        return late.topics.create_topics(self._state, request, permit)

    def create_partitions(
        self, request: CreatePartitionsRequest, permit: Permit = unlimited
    ) -> Slices[Outcome[CreatePartitionsResponse]]:
        """Add partitions to topics."""
        return late.topics.create_partitions(self._state, request, permit)

    def delete_topics(
        self, request: DeleteTopicsRequest, api_version: int = 6, permit: Permit = unlimited
    ) -> Slices[Outcome[DeleteTopicsResponse]]:
        """Delete topics by name or id."""
        return late.topics.delete_topics(self._state, request, api_version, permit)

    def follow_source(
        self, mirror: str, replication_factor: int, topics: Iterable[SourceTopic]
    ) -> Slices[Outcome[dict[str, str]]]:
        """Create and change the topics of a mirror as its source has them; returns problems by topic."""
        return late.mirrors.follow(self._state, mirror, replication_factor, topics)

    # -- settings ----------------------------------------------------------------------------------------------

    def alter_configs(
        self, request: AlterConfigsRequest, *, is_direct: bool = False
    ) -> Slices[Outcome[AlterConfigsResponse]]:
        """Replace the settings of resources. `is_direct`: no broker has checked those about its own directories."""
        return late.configs.alter(self._state, request, is_direct=is_direct)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, is_direct: bool = False
    ) -> Slices[Outcome[IncrementalAlterConfigsResponse]]:
        """Change single settings of resources. `is_direct`: no broker has checked those about its own directories."""
        return late.configs.incremental_alter(self._state, request, is_direct=is_direct)

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> Slices[Outcome[AlterClientQuotasResponse]]:
        """Set and remove quotas of users, client ids and IP addresses."""
        return late.quotas.alter(self._state, request)

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Slices[Outcome[AlterUserScramCredentialsResponse]]:
        """Set and delete the SCRAM credentials of users."""
        return late.scram.alter(self._state, request)

    def update_features(
        self, request: UpdateFeaturesRequest, api_version: int = 2, kraft_version: int = 0
    ) -> Outcome[UpdateFeaturesResponse]:
        """Change finalized feature levels; a change of `kraft_version`, the quorum's level, is only checked."""
        return features.update(self._state, request, api_version, kraft_version)

    def first_records(self, records: Sequence[Message]) -> Outcome[None]:
        """Return the records of a new cluster, which begin with those that it was formatted with."""
        return Outcome(features.first_records(self._state, records), None)

    def check_features(self) -> dict[str, tuple[int, int]]:
        """Features finalized above what is served: name to (finalized, served). Raises UNSUPPORTED_VERSION."""
        return features.check(self._state)

    # -- delegation tokens -------------------------------------------------------------------------------------

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, requester: str, now_ms: int
    ) -> Outcome[CreateDelegationTokenResponse]:
        """Create a token for the requester, or for the owner in the request. Times are ms of the wall clock."""
        return late.delegation_tokens.create(self._state, request, requester, now_ms)

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, principal: str, now_ms: int
    ) -> Outcome[RenewDelegationTokenResponse]:
        """Move the expiry of a token that `principal` owns or may renew."""
        return late.delegation_tokens.renew(self._state, request, principal, now_ms)

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, principal: str, now_ms: int
    ) -> Outcome[ExpireDelegationTokenResponse]:
        """Set the expiry of a token that `principal` owns or may renew, or delete it."""
        return late.delegation_tokens.expire(self._state, request, principal, now_ms)

    def delete_expired_tokens(self, now_ms: int) -> Outcome[bool]:
        """Delete expired tokens; True if the caller must call again."""
        return late.delegation_tokens.delete_expired(self._state, now_ms)

    # -- access control lists ------------------------------------------------------------------------------------

    def create_acls(self, request: CreateAclsRequest, mirror: str = "") -> Slices[Outcome[CreateAclsResponse]]:
        """Create access control lists, which `mirror` copies if it is given. Raises POLICY_VIOLATION for too many."""
        return late.acls.create(self._state, request, mirror)

    def outdated_acls(
        self, mirror: str, wanted: Container[Acl], covers: Callable[[Acl], bool]
    ) -> Slices[Outcome[dict[Uuid, Acl]]]:
        """The access control lists that a mirror has copied, and does not want any more although it `covers` them."""
        return late.acls.outdated(self._state, mirror, wanted, covers)

    def withdraw_acls(self, mirror: str, acl_ids: Iterable[Uuid]) -> Slices[Outcome[None]]:
        """Delete access control lists that only this mirror has copied. Raises POLICY_VIOLATION for too many."""
        return late.acls.withdraw(self._state, mirror, acl_ids)

    def delete_acls(self, request: DeleteAclsRequest) -> Slices[Outcome[DeleteAclsResponse]]:
        """Delete the access control lists that filters select. Raises INVALID_REQUEST for too many."""
        return late.acls.delete(self._state, request)

    # -- brokers and leaders -----------------------------------------------------------------------------------

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        *,
        now_ms: int = 0,
        clean_shutdown: bool | None = None,
        fenced: bool = True,
    ) -> Slices[Outcome[BrokerRegistrationResponse]]:
        """Register a new incarnation of a broker. Raises DUPLICATE_BROKER_REGISTRATION and INVALID_REGISTRATION."""
        return brokers.register(self._state, request, now_ms=now_ms, clean_shutdown=clean_shutdown, fenced=fenced)

    def begin_sessions(self, now_ms: int, restarting: int | None = None) -> None:
        """Give each registered broker a full session, when this controller becomes the active one.

        The broker `restarting` starts in this process, so that its old registration has ended.
        """
        brokers_with_session = (each for each in self._state.image.brokers.values() if each.broker_id != restarting)
        self._state.sessions.begin_all(brokers_with_session, now_ms)

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Slices[Outcome[BrokerHeartbeatResponse]]:
        """Extend a broker's session; fence, unfence or stop it. Raises STALE_BROKER_EPOCH."""
        return late.heartbeats.heartbeat(self._state, request, now_ms)

    def fence_one_expired_broker(self, now_ms: int) -> Slices[Outcome[bool]]:
        """Fence one broker without a heartbeat for `broker.session.timeout.ms`; True if the caller must call again."""
        return late.heartbeats.fence_one_expired(self._state, now_ms)

    def fence_dead_broker(self, broker_id: int, epoch: int) -> Slices[Outcome[bool]]:
        """Fence a broker whose process has evidently ended, and end its session; False if it is not registered so."""
        return late.heartbeats.fence_dead(self._state, broker_id, epoch)

    def note_disconnected(self, broker_id: int) -> Outcome[None]:
        """Note that the broker's connection was closed: its next process may register before the session expires."""
        self._state.sessions.note_disconnected(broker_id)
        return Outcome([], None)

    def note_silent(self, is_connected: Callable[[int], bool]) -> Outcome[None]:
        """Note the brokers that are not connected to this controller, as `note_disconnected` does."""
        for broker_id in self._state.image.brokers:
            if not is_connected(broker_id):
                self._state.sessions.note_disconnected(broker_id)
        return Outcome([], None)

    def extend_sessions(self, by_ms: int) -> Outcome[None]:
        """Extend all sessions by a time in which this controller could not receive heartbeats."""
        self._state.sessions.extend(by_ms)
        return Outcome([], None)

    def balance_leaders(self) -> Slices[Outcome[bool]]:
        """Return leadership to preferred replicas; True if the caller must call again."""
        return late.balancing.balance_leaders(self._state)

    def write_nothing(self) -> Outcome[bool]:
        """Append a record without a change, which shows that the quorum commits records. KIP-835."""
        return Outcome([NoOpRecord()], False)

    def elect_unclean_leaders(self) -> Slices[Outcome[bool]]:
        """Elect out-of-sync leaders where `unclean.leader.election.enable` allows it; True to call again."""
        return late.balancing.elect_unclean_leaders(self._state)

    def fence_broker(self, broker_id: int) -> Slices[Outcome[None]]:
        """Fence a broker that is not available: it loses its leaderships."""
        return brokers.fence(self._state, broker_id)

    def unfence_broker(self, broker_id: int, epoch: int) -> Slices[Outcome[None]]:
        """Unfence a broker. Raises STALE_BROKER_EPOCH."""
        return brokers.unfence(self._state, broker_id, epoch)

    def unregister_broker(self, broker_id: int) -> Slices[Outcome[UnregisterBrokerResponse]]:
        """Unregister a broker. Raises BROKER_ID_NOT_REGISTERED."""
        return brokers.unregister(self._state, broker_id)

    def register_controller(self, request: ControllerRegistrationRequest) -> Outcome[ControllerRegistrationResponse]:
        """Register a controller's listeners and features. Raises UNSUPPORTED_VERSION."""
        return brokers.register_controller(self._state, request)

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Slices[Outcome[AssignReplicasToDirsResponse]]:
        """Change the log directories of a broker's replicas. Raises STALE_BROKER_EPOCH and UNSUPPORTED_VERSION."""
        return late.directories.assign_replicas(self._state, request)

    def allocate_producer_ids(self, broker_id: int, epoch: int) -> Outcome[AllocateProducerIdsResponse]:
        """Allocate a block of producer ids. Raises STALE_BROKER_EPOCH."""
        return brokers.allocate_producer_ids(self._state, broker_id, epoch)

    def alter_partition(
        self, request: AlterPartitionRequest, api_version: int = 3
    ) -> Slices[Outcome[AlterPartitionResponse]]:
        """Change the in-sync replicas of partitions as their leader asks. Raises STALE_BROKER_EPOCH."""
        return late.alter_partition.alter_partition(self._state, request, api_version)

    def elect_leaders(self, request: ElectLeadersRequest) -> Slices[Outcome[ElectLeadersResponse]]:
        """Elect preferred or unclean leaders."""
        return leaders.elect_leaders(self._state, request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Slices[Outcome[AlterPartitionReassignmentsResponse]]:
        """Start or cancel reassignments of partitions."""
        return late.reassignment.alter(self._state, request)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Slices[Outcome[ListPartitionReassignmentsResponse]]:
        """List reassignments in progress."""
        return late.reassignment.ongoing(self._state, request)
