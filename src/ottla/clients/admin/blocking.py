"""The admin client's blocking face: `AsyncAdmin` on a loop in a thread. Method for method the same."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ottla.clients.admin.access_model import (
    Acl,
    AclFilter,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.model import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    Features,
    GroupDescription,
    GroupListing,
    GroupOffset,
    GroupState,
    GroupType,
    LogDirectory,
    NewTopic,
    OffsetAt,
    OffsetSpec,
    PartitionLag,
    ProducerDescription,
    Quorum,
    Reassignment,
    ResourceType,
    TopicCreated,
    TopicDescription,
    TopicListing,
)
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.typed_settings import CommonConfig
from ottla.common.ids import TopicPartition

R = TypeVar("R")


class Admin:
    """Manages a cluster: topics, configuration, groups, offsets, brokers. Every method blocks.

        with Admin("localhost:9092") as admin:
            admin.create_topic("orders", partitions=6)

    Settings (`options.COMMON_OPTIONS`) have Kafka's names or Pythonic ones, as keywords or in `config`; a mapping may
    come first too, as with the other clients.

    A method about one thing returns its result or raises its error: a BrokerError whose class or `code` says what the
    broker minds, or one of the network's (see `errors`). A method about several returns a dict by what was asked about
    and raises one PartialFailure, an exception group with `errors` and `results`, if some failed. Each asks again
    while a broker is not ready or the wrong one, and gives up after `timeout_s` (default.api.timeout.ms).

    Threads may share it. After a fork each process needs its own.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: Unpack[CommonConfig],
    ) -> None:
        self._async = AsyncAdmin(bootstrap_servers, config, **settings)
        self._driver = Driver("ottla-admin")
        self._dropped = when_dropped(self, lambda: "admin client", self._driver, self._async.close)

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._driver.run(coroutine)

    def start(self, timeout_s: float | None = None) -> None:
        """Connect to the cluster; else the first call does. Raises BrokerUnavailable, naming each address."""
        self._run(self._async.start(timeout_s))

    def close(self) -> None:
        """Close the connections; calls under way fail with Closed."""
        self._dropped.detach()
        if not self._driver.closed:
            self._run(self._async.close())
            self._driver.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- topics ------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> TopicCreated:
        """The topic, created; -1 is the broker's default.

        Raises TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig: not
        retriable. With `validate_only` nothing is created.
        """
        return self._run(
            self._async.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                config=config,
                validate_only=validate_only,
                timeout_s=timeout_s,
            )
        )

    def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, TopicCreated]:
        """The topics, created in one request, by name; a string is a topic with the broker's defaults."""
        return self._run(self._async.create_topics(new_topics, validate_only=validate_only, timeout_s=timeout_s))

    def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """The topic is gone, with its records. Raises UnknownTopicOrPartition."""
        self._run(self._async.delete_topic(name, timeout_s=timeout_s))

    def delete_topics(self, names: Iterable[str], *, timeout_s: float | None = None) -> None:
        """The topics are gone, with their records."""
        self._run(self._async.delete_topics(names, timeout_s=timeout_s))

    def list_topics(self, *, include_internal: bool = False, timeout_s: float | None = None) -> list[TopicListing]:
        """Every topic, by name; Kafka's own (offsets of groups) only if asked for."""
        return self._run(self._async.list_topics(include_internal=include_internal, timeout_s=timeout_s))

    def describe_topic(self, name: str, *, timeout_s: float | None = None) -> TopicDescription:
        """The topic's partitions with their leaders and replicas. Raises UnknownTopicOrPartition."""
        return self._run(self._async.describe_topic(name, timeout_s=timeout_s))

    def describe_topics(self, names: Iterable[str], *, timeout_s: float | None = None) -> dict[str, TopicDescription]:
        """The partitions of each topic with their leaders and replicas."""
        return self._run(self._async.describe_topics(names, timeout_s=timeout_s))

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """The topics have so many partitions in all, never fewer than before (InvalidPartitions).

        Keys move to other partitions: records of one key are then in two.
        """
        self._run(self._async.create_partitions(counts, validate_only=validate_only, timeout_s=timeout_s))

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition after all records before the given one (-1: all) are deleted.

        Raises OffsetOutOfRange for an offset beyond the end.
        """
        return self._run(self._async.delete_records(before, timeout_s=timeout_s))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Whether each partition needed an election: its first replica leads again, if it is in sync.

        `unclean`: a partition without any leader gets a replica that may have lost records.
        """
        return self._run(self._async.elect_leaders(partitions, unclean=unclean, timeout_s=timeout_s))

    def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> None:
        """The partitions begin to move to these brokers (node ids, the preferred leader first); None calls it off."""
        self._run(self._async.alter_partition_reassignments(replicas, timeout_s=timeout_s))

    def list_partition_reassignments(self, *, timeout_s: float | None = None) -> dict[TopicPartition, Reassignment]:
        """Every partition that is moving now."""
        return self._run(self._async.list_partition_reassignments(timeout_s=timeout_s))

    # -- configuration -----------------------------------------------------------------------------------------

    def describe_config(
        self,
        resource: ConfigResource,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """Every setting of a topic, broker or group, by name."""
        return self._run(
            self._async.describe_config(resource, synonyms=synonyms, documentation=documentation, timeout_s=timeout_s)
        )

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Every setting of each resource, by name; `synonyms` tells where each value comes from."""
        return self._run(
            self._async.describe_configs(resources, synonyms=synonyms, documentation=documentation, timeout_s=timeout_s)
        )

    def alter_config(
        self,
        resource: ConfigResource,
        changes: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """The settings have these values; None is the default again, Append and Subtract change lists.

        Settings that are not named stay. Raises InvalidConfig, and then changes nothing.
        """
        self._run(self._async.alter_config(resource, changes, validate_only=validate_only, timeout_s=timeout_s))

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, object]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """The settings of each resource have these values, as with `alter_config`."""
        self._run(self._async.alter_configs(changes, validate_only=validate_only, timeout_s=timeout_s))

    def list_config_resources(
        self, types: Iterable[ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """What has a configuration; only these types, if any are given. Needs Kafka 4.1 for all but client metrics."""
        return self._run(self._async.list_config_resources(types, timeout_s=timeout_s))

    # -- offsets -----------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """The offset of a place (OffsetSpec), or of the first record at or after a timestamp (ms), per partition.

        The offset is -1 if there is no such record. LATEST is the next one to be written or, with `read_committed`,
        the first of an open transaction.
        """
        return self._run(self._async.list_offsets(specs, read_committed=read_committed, timeout_s=timeout_s))

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group committed, of these or all partitions; those without are left out, as is an unknown group."""
        return self._run(self._async.list_group_offsets(group, partitions, timeout_s=timeout_s))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, GroupOffset | int], *, timeout_s: float | None = None
    ) -> None:
        """The group goes on at these offsets. It must have no members (UnknownMember if it has)."""
        self._run(self._async.alter_group_offsets(group, offsets, timeout_s=timeout_s))

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """The group has committed nothing for these. Raises GroupSubscribedToTopic, GroupNotFound per partition."""
        self._run(self._async.delete_group_offsets(group, partitions, timeout_s=timeout_s))

    def group_lag(self, group: str, *, timeout_s: float | None = None) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind in each partition that it committed for."""
        return self._run(self._async.group_lag(group, timeout_s=timeout_s))

    # -- groups ------------------------------------------------------------------------------------------------

    def list_groups(
        self,
        *,
        states: Iterable[GroupState] = (),
        types: Iterable[GroupType] = (),
        timeout_s: float | None = None,
    ) -> list[GroupListing]:
        """The groups of every broker, by id; only in these states and of these types, if any are given."""
        return self._run(self._async.list_groups(states=states, types=types, timeout_s=timeout_s))

    def describe_group(self, group: str, *, timeout_s: float | None = None) -> GroupDescription:
        """The group's state, and its members with what each reads. Raises GroupNotFound."""
        return self._run(self._async.describe_group(group, timeout_s=timeout_s))

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription]:
        """The state of each group, and its members with what each reads."""
        return self._run(self._async.describe_groups(group_ids, timeout_s=timeout_s))

    def delete_group(self, group: str, *, timeout_s: float | None = None) -> None:
        """The group is gone, with what it committed. Raises NonEmptyGroup, GroupNotFound."""
        self._run(self._async.delete_group(group, timeout_s=timeout_s))

    def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> None:
        """The groups are gone, with what they committed."""
        self._run(self._async.delete_groups(group_ids, timeout_s=timeout_s))

    def remove_group_members(
        self,
        group: str,
        instance_ids: Iterable[str],
        *,
        reason: str = "removed by an administrator",
        timeout_s: float | None = None,
    ) -> None:
        """These static members (group.instance.id) are out of the group; the others share what they had."""
        self._run(self._async.remove_group_members(group, instance_ids, reason=reason, timeout_s=timeout_s))

    # -- the cluster -------------------------------------------------------------------------------------------

    def describe_cluster(self, *, include_fenced: bool = False, timeout_s: float | None = None) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        return self._run(self._async.describe_cluster(include_fenced=include_fenced, timeout_s=timeout_s))

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_s: float | None = None,
    ) -> dict[int, tuple[LogDirectory, ...]]:
        """The log directories of these or all brokers (node ids), with the bytes of these or all partitions."""
        return self._run(self._async.describe_log_dirs(brokers, partitions=partitions, timeout_s=timeout_s))

    def describe_features(self, *, timeout_s: float | None = None) -> Features:
        """The features in force, and those that a broker could do."""
        return self._run(self._async.describe_features(timeout_s=timeout_s))

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: bool = False,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """The features are in force at these levels; `downgrade` allows lower ones than now, 0 is out of force."""
        self._run(
            self._async.update_features(levels, downgrade=downgrade, validate_only=validate_only, timeout_s=timeout_s)
        )

    def describe_quorum(self, *, timeout_s: float | None = None) -> Quorum:
        """Who leads and who follows the cluster's metadata, and how far each is."""
        return self._run(self._async.describe_quorum(timeout_s=timeout_s))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """The idempotent producers that wrote to each partition lately, and their open transactions."""
        return self._run(self._async.describe_producers(partitions, timeout_s=timeout_s))

    def unregister_broker(self, broker: int, *, timeout_s: float | None = None) -> None:
        """A broker (node id) that is down is no part of the cluster any more."""
        self._run(self._async.unregister_broker(broker, timeout_s=timeout_s))

    # -- access ------------------------------------------------------------------------------------------------

    def create_acls(self, acls: Iterable[Acl], *, timeout_s: float | None = None) -> None:
        """The rules hold, on every broker in a moment. Raises PartialFailure by Acl."""
        self._run(self._async.create_acls(acls, timeout_s=timeout_s))

    def describe_acls(self, wanted: AclFilter | None = None, *, timeout_s: float | None = None) -> list[Acl]:
        """The rules that match, all if nothing is wanted in particular. Raises ClusterAuthorizationFailed."""
        return self._run(self._async.describe_acls(wanted, timeout_s=timeout_s))

    def delete_acls(
        self, filters: Iterable[AclFilter | Acl], *, timeout_s: float | None = None
    ) -> dict[AclFilter, tuple[Acl, ...]]:
        """The rules that match are gone: which these were, by filter. An Acl matches itself alone."""
        return self._run(self._async.delete_acls(filters, timeout_s=timeout_s))

    def describe_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """By which SCRAM mechanisms these or all users may log in. A user without any is a ResourceNotFound."""
        return self._run(self._async.describe_scram_credentials(users, timeout_s=timeout_s))

    def alter_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_s: float | None = None
    ) -> None:
        """The users have these credentials, or not any more. Raises PartialFailure by user, ConfigurationError."""
        self._run(self._async.alter_scram_credentials(changes, timeout_s=timeout_s))

    def describe_client_quotas(
        self, wanted: QuotaEntity | None = None, *, strict: bool = False, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of those who match, all if nobody in particular is wanted.

        `strict`: only of those about whom nothing but what is asked for is said. A quota is by name:
        producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, connection_creation_rate.
        """
        return self._run(self._async.describe_client_quotas(wanted, strict=strict, timeout_s=timeout_s))

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """These have these quotas; None takes one away. Raises PartialFailure by entity, ConfigurationError."""
        self._run(self._async.alter_client_quotas(changes, validate_only=validate_only, timeout_s=timeout_s))
