"""The admin client's asyncio face: each method makes a plan and has it carried out. `blocking.Admin` has the same."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from ottla.clients.admin import access, configs, groups, topics
from ottla.clients.admin import cluster as cluster_plans
from ottla.clients.admin.access_model import (
    Acl,
    AclFilter,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from ottla.clients.admin.core import Call, Outcome, Plan, several
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
from ottla.clients.admin.shell import Shell
from ottla.clients.options import COMMON_OPTIONS, merged, read_options
from ottla.clients.typed_settings import CommonConfig
from ottla.common.ids import TopicPartition

R = TypeVar("R")
T = TypeVar("T")

SALT_BYTES: Final = 24


def admin_options(
    bootstrap_servers: str | Sequence[str] | Mapping[str, object] | None,
    config: Mapping[str, object] | None,
    keywords: Mapping[str, object],
) -> dict[str, Any]:
    """The settings of an admin client from what its constructor was given."""
    if isinstance(bootstrap_servers, Mapping):
        config, bootstrap_servers = merged(config, bootstrap_servers), None
    given = merged(config, keywords)
    if bootstrap_servers is not None:
        given["bootstrap_servers"] = bootstrap_servers
    return read_options(COMMON_OPTIONS, given)


def _optional(name: str, given: Iterable[T] | None) -> list[T] | None:
    return None if given is None else several(name, given)


def _every(call: Call[Any, Any]) -> Plan[Any]:
    """The results by key, or PartialFailure."""
    return (yield call).all()


def _only(call: Call[Any, Any]) -> Plan[Any]:
    """The result of the only key, or its error."""
    return (yield call).one()


def _every_of(plan: Plan[Outcome[Any, Any]]) -> Plan[Any]:
    return (yield from plan).all()


def _only_of(plan: Plan[Outcome[Any, Any]]) -> Plan[Any]:
    return (yield from plan).one()


class AsyncAdmin:
    """Manages a cluster: topics, configuration, groups, offsets, brokers. For asyncio; `Admin` is the blocking twin.

        async with AsyncAdmin("localhost:9092") as admin:
            await admin.create_topic("orders", partitions=6)

    Settings (`options.COMMON_OPTIONS`) have Kafka's names or Pythonic ones, as keywords or in `config`; a mapping may
    come first too, as with the other clients.

    A method about one thing returns its result or raises its error: a BrokerError whose class or `code` says what the
    broker minds, or one of the network's (see `errors`). A method about several returns a dict by what was asked about
    and raises one PartialFailure, an exception group with `errors` and `results`, if some failed. Each asks again
    while a broker is not ready or the wrong one, and gives up after `timeout_s` (default.api.timeout.ms).
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: Unpack[CommonConfig],
    ) -> None:
        self._shell = Shell(admin_options(bootstrap_servers, config, settings))

    async def _run(self, plan: Plan[R], timeout_s: float | None) -> R:
        return await self._shell.perform(plan, timeout_s)

    async def start(self, timeout_s: float | None = None) -> None:
        """Connect to the cluster; else the first call does. Raises BrokerUnavailable, naming each address."""
        await self._shell.start(timeout_s)

    async def close(self) -> None:
        """Close the connections; calls in progress fail with Closed."""
        await self._shell.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- topics ------------------------------------------------------------------------------------------------

    async def create_topic(
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
        topic = NewTopic(name, partitions, replication_factor, config or {})
        return await self._run(_only(topics.create([topic], validate_only)), timeout_s)

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, TopicCreated]:
        """The topics, created in one request, by name; a string is a topic with the broker's defaults."""
        return await self._run(_every(topics.create(several("new_topics", new_topics), validate_only)), timeout_s)

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """The topic is gone, with its records. Raises UnknownTopicOrPartition."""
        await self._run(_only(topics.delete([name])), timeout_s)

    async def delete_topics(self, names: Iterable[str], *, timeout_s: float | None = None) -> None:
        """The topics are gone, with their records."""
        await self._run(_every(topics.delete(several("names", names))), timeout_s)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_s: float | None = None
    ) -> list[TopicListing]:
        """Every topic, by name; Kafka's own (offsets of groups) only if asked for."""
        return await self._run(topics.list_all(include_internal), timeout_s)

    async def describe_topic(self, name: str, *, timeout_s: float | None = None) -> TopicDescription:
        """The topic's partitions with their leaders and replicas. Raises UnknownTopicOrPartition."""
        return await self._run(_only(topics.describe([name])), timeout_s)

    async def describe_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TopicDescription]:
        """The partitions of each topic with their leaders and replicas."""
        return await self._run(_every(topics.describe(several("names", names))), timeout_s)

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """The topics have so many partitions in all, never fewer than before (InvalidPartitions).

        Keys move to other partitions: records of one key are then in two.
        """
        await self._run(_every(topics.grow(counts, validate_only)), timeout_s)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition after all records before the given one (-1: all) are deleted.

        Raises OffsetOutOfRange for an offset beyond the end.
        """
        return await self._run(_every(topics.delete_before(before)), timeout_s)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Whether each partition needed an election: its first replica leads again, if it is in sync.

        `unclean`: a partition without any leader gets a replica that may have lost records.
        """
        return await self._run(_every(topics.elect(several("partitions", partitions), unclean)), timeout_s)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> None:
        """The partitions begin to move to these brokers (node ids, the preferred leader first); None calls it off."""
        await self._run(_every(topics.reassign(replicas)), timeout_s)

    async def list_partition_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Every partition that is moving now."""
        return await self._run(topics.reassignments(), timeout_s)

    # -- configuration -----------------------------------------------------------------------------------------

    async def describe_config(
        self,
        resource: ConfigResource,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, ConfigEntry]:
        """Every setting of a topic, broker or group, by name."""
        return await self._run(_only_of(configs.describe([resource], synonyms, documentation)), timeout_s)

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Every setting of each resource, by name; `synonyms` tells where each value comes from."""
        wanted = several("resources", resources)
        return await self._run(_every_of(configs.describe(wanted, synonyms, documentation)), timeout_s)

    async def alter_config(
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
        await self._run(_only_of(configs.alter({resource: changes}, validate_only)), timeout_s)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, object]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """The settings of each resource have these values, as with `alter_config`."""
        await self._run(_every_of(configs.alter(changes, validate_only)), timeout_s)

    async def list_config_resources(
        self, types: Iterable[ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """What has a configuration; only these types, if any are given. Needs Kafka 4.1 for all but client metrics."""
        return await self._run(configs.list_resources(several("types", types)), timeout_s)

    # -- offsets -----------------------------------------------------------------------------------------------

    async def list_offsets(
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
        return await self._run(_every(groups.offsets_at(specs, read_committed)), timeout_s)

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group committed, of these or all partitions; those without are left out, as is an unknown group."""
        return await self._run(groups.committed(group, _optional("partitions", partitions)), timeout_s)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, GroupOffset | int], *, timeout_s: float | None = None
    ) -> None:
        """The group goes on at these offsets. It must have no members (UnknownMember if it has)."""
        await self._run(_every(groups.alter(group, offsets)), timeout_s)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """The group has committed nothing for these. Raises GroupSubscribedToTopic, GroupNotFound per partition."""
        await self._run(_every(groups.forget(group, several("partitions", partitions))), timeout_s)

    async def group_lag(self, group: str, *, timeout_s: float | None = None) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind in each partition that it committed for."""
        return await self._run(groups.lag(group), timeout_s)

    # -- groups ------------------------------------------------------------------------------------------------

    async def list_groups(
        self,
        *,
        states: Iterable[GroupState] = (),
        types: Iterable[GroupType] = (),
        timeout_s: float | None = None,
    ) -> list[GroupListing]:
        """The groups of every broker, by id; only in these states and of these types, if any are given."""
        return await self._run(groups.list_all(several("states", states), several("types", types)), timeout_s)

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> GroupDescription:
        """The group's state, and its members with what each reads. Raises GroupNotFound."""
        return await self._run(_only_of(groups.describe([group])), timeout_s)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription]:
        """The state of each group, and its members with what each reads."""
        return await self._run(_every_of(groups.describe(several("group_ids", group_ids))), timeout_s)

    async def delete_group(self, group: str, *, timeout_s: float | None = None) -> None:
        """The group is gone, with what it committed. Raises NonEmptyGroup, GroupNotFound."""
        await self._run(_only(groups.delete([group])), timeout_s)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> None:
        """The groups are gone, with what they committed."""
        await self._run(_every(groups.delete(several("group_ids", group_ids))), timeout_s)

    async def remove_group_members(
        self,
        group: str,
        instance_ids: Iterable[str],
        *,
        reason: str = "removed by an administrator",
        timeout_s: float | None = None,
    ) -> None:
        """These static members (group.instance.id) are out of the group; the others share what they had."""
        await self._run(_every(groups.remove_members(group, several("instance_ids", instance_ids), reason)), timeout_s)

    # -- the cluster -------------------------------------------------------------------------------------------

    async def describe_cluster(
        self, *, include_fenced: bool = False, timeout_s: float | None = None
    ) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        return await self._run(cluster_plans.describe(include_fenced), timeout_s)

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_s: float | None = None,
    ) -> dict[int, tuple[LogDirectory, ...]]:
        """The log directories of these or all brokers (node ids), with the bytes of these or all partitions."""
        wanted = _optional("brokers", brokers), _optional("partitions", partitions)
        return await self._run(_every(cluster_plans.log_directories(*wanted)), timeout_s)

    async def describe_features(self, *, timeout_s: float | None = None) -> Features:
        """The features in force, and those that a broker could do."""
        return await self._run(cluster_plans.features(), timeout_s)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: bool = False,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """The features are in force at these levels; `downgrade` allows lower ones than now, 0 is out of force."""
        await self._run(_every(cluster_plans.alter_features(levels, downgrade, validate_only)), timeout_s)

    async def describe_quorum(self, *, timeout_s: float | None = None) -> Quorum:
        """Who leads and who follows the cluster's metadata, and how far each is."""
        return await self._run(cluster_plans.quorum(), timeout_s)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """The idempotent producers that wrote to each partition lately, and their open transactions."""
        return await self._run(_every(cluster_plans.producers(several("partitions", partitions))), timeout_s)

    async def unregister_broker(self, broker: int, *, timeout_s: float | None = None) -> None:
        """A broker (node id) that is down is no part of the cluster any more."""
        await self._run(cluster_plans.unregister(broker), timeout_s)

    # -- access ------------------------------------------------------------------------------------------------

    async def create_acls(self, acls: Iterable[Acl], *, timeout_s: float | None = None) -> None:
        """The rules hold, on every broker in a moment. Raises PartialFailure by Acl."""
        await self._run(_every(access.create(several("acls", acls))), timeout_s)

    async def describe_acls(self, wanted: AclFilter | None = None, *, timeout_s: float | None = None) -> list[Acl]:
        """The rules that match, all if nothing is wanted in particular. Raises ClusterAuthorizationFailed."""
        return await self._run(_only(access.describe(wanted or AclFilter())), timeout_s)

    async def delete_acls(
        self, filters: Iterable[AclFilter | Acl], *, timeout_s: float | None = None
    ) -> dict[AclFilter, tuple[Acl, ...]]:
        """The rules that match are gone: which these were, by filter. An Acl matches itself alone."""
        return await self._run(_every(access.delete(several("filters", filters))), timeout_s)

    async def describe_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """By which SCRAM mechanisms these or all users may log in. A user without any is a ResourceNotFound."""
        return await self._run(access.describe_scram(_optional("users", users)), timeout_s)

    async def alter_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_s: float | None = None
    ) -> None:
        """The users have these credentials, or not any more. Raises PartialFailure by user, ConfigurationError."""
        salts = iter(lambda: secrets.token_bytes(SALT_BYTES), b"")
        await self._run(_every_of(access.alter_scram(several("changes", changes), salts)), timeout_s)

    async def describe_client_quotas(
        self, wanted: QuotaEntity | None = None, *, strict: bool = False, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of those who match, all if nobody in particular is wanted.

        `strict`: only of those about whom nothing but what is asked for is said. A quota is by name:
        producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, connection_creation_rate.
        """
        return await self._run(_only(access.describe_quotas(wanted or QuotaEntity(), strict)), timeout_s)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """These have these quotas; None takes one away. Raises PartialFailure by entity, ConfigurationError."""
        await self._run(_every(access.alter_quotas(changes, validate_only)), timeout_s)
