"""The asyncio admin client: each method builds a plan, and `shell.Shell` runs it. `blocking.Admin` derives from it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from ottla.clients.admin import access, configs, groups, mirrors, model, share_groups, tokens, topics, transactions
from ottla.clients.admin import cluster as cluster_plans
from ottla.clients.admin.access_model import (
    Acl,
    AclFilter,
    DelegationToken,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from ottla.clients.admin.core import Plan, every, every_of, only, only_of, optional, several
from ottla.clients.admin.logs import LogMethods
from ottla.clients.admin.settings import read_settings
from ottla.clients.admin.shell import Shell
from ottla.clients.typed_settings import CommonConfig
from ottla.common.ids import TopicPartition

R = TypeVar("R")


class AsyncAdmin(LogMethods):
    """Manages a cluster: topics, configuration, groups, offsets, brokers. For asyncio; `Admin` is the blocking API.

        async with AsyncAdmin("localhost:9092") as admin:
            await admin.create_topic("orders", partitions=6)

    Settings have Kafka's names or Pythonic ones, as keywords or in `config`; a mapping may be the first argument too.

    A method about one thing returns its result or raises its error: a BrokerError whose class or `code` names the
    broker's objection, or a network error (see `errors`). A method about several things returns a dict. If some of them
    failed, it raises one PartialFailure, an exception group with `errors` and `results`. Each method retries while a
    broker is not ready or not responsible, until `timeout_s` (default.api.timeout.ms) is over.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Mapping[str, object] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: Unpack[CommonConfig],
    ) -> None:
        self._shell = Shell(read_settings(bootstrap_servers, config, settings))

    async def _run(self, plan: Plan[R], timeout_s: float | None) -> R:
        return await self._shell.perform(plan, timeout_s)

    async def start(self, timeout_s: float | None = None) -> None:
        """Connect to the cluster; without this, the first call connects. Raises BrokerUnavailable with each address."""
        await self._shell.start(timeout_s)

    async def client_instance_id(self, timeout_s: float = 30.0) -> str:
        """The id of this client in pushed metrics. Raises ClientError, UnsupportedByBroker, RequestTimedOut."""
        return await self._shell.client_instance_id(timeout_s)

    async def close(self) -> None:
        """Close the connections; calls in progress fail with Closed."""
        await self._shell.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
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
    ) -> model.TopicCreated:
        """Create a topic; -1 is the broker's default.

        Raises TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig: not
        retriable. With `validate_only` nothing is created.
        """
        topic = model.NewTopic(name, partitions, replication_factor, config or {})
        return await self._run(only(topics.create([topic], validate_only)), timeout_s)

    async def create_topics(
        self, new_topics: Iterable[model.NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, model.TopicCreated]:
        """Create topics in one request; a string is a topic with the broker's defaults. Returns results by name."""
        return await self._run(every(topics.create(several("new_topics", new_topics), validate_only)), timeout_s)

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartition."""
        await self._run(only(topics.delete([name])), timeout_s)

    async def delete_topics(self, names: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete topics and their records."""
        await self._run(every(topics.delete(several("names", names))), timeout_s)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_s: float | None = None
    ) -> list[model.TopicListing]:
        """List every topic, sorted by name; Kafka's internal topics only with `include_internal`."""
        return await self._run(topics.list_all(include_internal), timeout_s)

    async def describe_topic(self, name: str, *, timeout_s: float | None = None) -> model.TopicDescription:
        """Return the partitions of a topic with their leaders and replicas. Raises UnknownTopicOrPartition."""
        return await self._run(only_of(topics.describe([name])), timeout_s)

    async def describe_topics(
        self, names: Iterable[str] | None, *, timeout_s: float | None = None
    ) -> dict[str, model.TopicDescription]:
        """Return the partitions of each topic with their leaders and replicas. None: all topics that the user sees."""
        return await self._run(every_of(topics.describe(optional("names", names))), timeout_s)

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise the number of partitions of topics to these totals; a smaller total raises InvalidPartitions.

        Most keys then map to another partition, so the records of one key may be in two partitions.
        """
        await self._run(every(topics.grow(counts, validate_only)), timeout_s)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all) of each partition, and return the new first offsets.

        Raises OffsetOutOfRange for an offset beyond the end.
        """
        return await self._run(every(topics.delete_before(before)), timeout_s)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Elect the preferred leader of each partition if it is in sync. Returns whether an election was needed.

        With `unclean`, a partition without a leader gets a replica that may have lost records.
        """
        return await self._run(every(topics.elect(several("partitions", partitions), unclean)), timeout_s)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> None:
        """Start to move partitions to these brokers (node ids, the preferred leader first); None cancels a move."""
        await self._run(every(topics.reassign(replicas)), timeout_s)

    async def list_partition_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, model.Reassignment]:
        """List every partition that is moving."""
        return await self._run(topics.reassignments(), timeout_s)

    # -- configuration -----------------------------------------------------------------------------------------

    async def describe_config(
        self,
        resource: model.ConfigResource,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, model.ConfigEntry]:
        """Return every setting of a topic, broker or group by name."""
        return await self._run(only_of(configs.describe([resource], synonyms, documentation)), timeout_s)

    async def describe_configs(
        self,
        resources: Iterable[model.ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[model.ConfigResource, dict[str, model.ConfigEntry]]:
        """Return every setting of each resource, or only `names`; with `synonyms` also all sources of each value."""
        wanted, only = several("resources", resources), optional("names", names)
        return await self._run(every_of(configs.describe(wanted, synonyms, documentation, only)), timeout_s)

    async def mirror_status(self, name: str, *, timeout_s: float | None = None) -> dict[int, dict[str, Any]]:
        """Return what each broker reports about a mirror: `problem`, `topics` with a problem, and its `partitions`."""
        return await self._run(every_of(mirrors.status(name)), timeout_s)

    async def alter_config(
        self,
        resource: model.ConfigResource,
        changes: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Set settings; None restores the default, Append and Subtract change lists.

        Other settings keep their values. Raises InvalidConfig, and then changes nothing.
        """
        await self._run(only_of(configs.alter({resource: changes}, validate_only)), timeout_s)

    async def alter_configs(
        self,
        changes: Mapping[model.ConfigResource, Mapping[str, object]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Set settings of each resource, as `alter_config` does."""
        await self._run(every_of(configs.alter(changes, validate_only)), timeout_s)

    async def list_config_resources(
        self, types: Iterable[model.ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[model.ConfigResource]:
        """List the resources with a configuration, optionally of these types (Kafka 4.1, except for client metrics)."""
        return await self._run(configs.list_resources(several("types", types)), timeout_s)

    # -- offsets -----------------------------------------------------------------------------------------------

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, model.OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, model.OffsetAt]:
        """Return an offset of each partition: of an OffsetSpec, or of the first record at or after a timestamp (ms).

        It is -1 without such a record. LATEST is the high watermark or, with `read_committed`, the last stable offset.
        """
        return await self._run(every(groups.offsets_at(specs, read_committed)), timeout_s)

    async def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, model.GroupOffset]:
        """Return the committed offsets of a group for these or all partitions. Partitions without one are omitted.

        With `require_stable`, waits for the end of transactions that commit offsets of these partitions.
        """
        wanted = optional("partitions", partitions)
        return await self._run(groups.committed(group, wanted, require_stable=require_stable), timeout_s)

    async def list_offsets_of_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, dict[TopicPartition, model.GroupOffset]]:
        """Return all committed offsets of several groups. Brokers before Kafka 3.0 raise UNSUPPORTED_VERSION."""
        return await self._run(every(groups.committed_by_groups(several("group_ids", group_ids))), timeout_s)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, model.GroupOffset | int], *, timeout_s: float | None = None
    ) -> None:
        """Set the committed offsets of a group. A group with members raises UnknownMember."""
        await self._run(every(groups.alter(group, offsets)), timeout_s)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> None:
        """Delete committed offsets. Raises GroupSubscribedToTopic, GroupNotFound per partition."""
        await self._run(every(groups.forget(group, several("partitions", partitions))), timeout_s)

    async def list_share_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, model.ShareGroupOffset]:
        """Return where a share group starts in these or all partitions. Partitions that it never read are omitted."""
        return await self._run(share_groups.offsets(group, optional("partitions", partitions)), timeout_s)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Set where a share group starts in partitions. Raises NonEmptyGroup for a group with members."""
        await self._run(every(share_groups.alter(group, offsets)), timeout_s)

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> None:
        """Delete the offsets of a share group for topics. Raises NonEmptyGroup for a group with members."""
        await self._run(every(share_groups.forget(group, several("topics", topics))), timeout_s)

    async def group_lag(
        self, group: str, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, model.PartitionLag]:
        """Return the lag of a group in each partition with a committed offset."""
        return await self._run(groups.lag(group), timeout_s)

    # -- groups ------------------------------------------------------------------------------------------------

    async def list_groups(
        self,
        *,
        states: Iterable[model.GroupState] = (),
        types: Iterable[model.GroupType] = (),
        timeout_s: float | None = None,
    ) -> list[model.GroupListing]:
        """List the groups of every broker, sorted by id, optionally only in these states and of these types."""
        return await self._run(groups.list_all(several("states", states), several("types", types)), timeout_s)

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> model.GroupDescription:
        """Return the state of a group, and its members with their assignments. Raises GroupNotFound."""
        return await self._run(only_of(groups.describe([group])), timeout_s)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, model.GroupDescription]:
        """Return the state of each group, and its members with their assignments."""
        return await self._run(every_of(groups.describe(several("group_ids", group_ids))), timeout_s)

    async def delete_group(self, group: str, *, timeout_s: float | None = None) -> None:
        """Delete a group and its committed offsets. Raises NonEmptyGroup, GroupNotFound."""
        await self._run(only(groups.delete([group])), timeout_s)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete groups and their committed offsets."""
        await self._run(every(groups.delete(several("group_ids", group_ids))), timeout_s)

    async def remove_group_members(
        self,
        group: str,
        instance_ids: Iterable[str],
        *,
        reason: str = "removed by an administrator",
        timeout_s: float | None = None,
    ) -> None:
        """Remove static members (group.instance.id) from a group; their partitions are reassigned."""
        await self._run(every(groups.remove_members(group, several("instance_ids", instance_ids), reason)), timeout_s)

    # -- the cluster -------------------------------------------------------------------------------------------

    async def describe_cluster(
        self, *, include_fenced: bool = False, timeout_s: float | None = None
    ) -> model.ClusterDescription:
        """Return the cluster's id, brokers and controller."""
        return await self._run(cluster_plans.describe(include_fenced), timeout_s)

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_s: float | None = None,
    ) -> dict[int, tuple[model.LogDirectory, ...]]:
        """Return the log directories of these or all brokers (node ids), with the bytes of these or all partitions."""
        wanted = optional("brokers", brokers), optional("partitions", partitions)
        return await self._run(every(cluster_plans.log_directories(*wanted)), timeout_s)

    async def describe_features(self, *, timeout_s: float | None = None) -> model.Features:
        """Return the finalized features, and those that a broker supports."""
        return await self._run(cluster_plans.features(), timeout_s)

    async def describe_features_of(
        self, brokers: Iterable[int], *, timeout_s: float | None = None
    ) -> dict[int, model.Features]:
        """Return the features of each of these brokers (node ids): brokers of different versions differ."""
        return await self._run(every(cluster_plans.features_of(several("brokers", brokers))), timeout_s)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: bool = False,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Set the levels of features; `downgrade` allows lower levels than the current ones, 0 disables a feature."""
        await self._run(every(cluster_plans.alter_features(levels, downgrade, validate_only)), timeout_s)

    async def describe_quorum(self, *, timeout_s: float | None = None) -> model.Quorum:
        """Return the leader, voters and observers of the metadata quorum with their log end offsets."""
        return await self._run(cluster_plans.quorum(), timeout_s)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[model.ProducerDescription, ...]]:
        """Return the active idempotent producers of each partition, and their open transactions."""
        return await self._run(every(cluster_plans.producers(several("partitions", partitions))), timeout_s)

    async def unregister_broker(self, broker: int, *, timeout_s: float | None = None) -> None:
        """Remove a broker (node id) that is down from the cluster."""
        await self._run(cluster_plans.unregister(broker), timeout_s)

    # -- transactions ------------------------------------------------------------------------------------------

    async def list_transactions(
        self,
        *,
        states: Iterable[transactions.TransactionState] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[transactions.TransactionListing]:
        """List the transactional ids of the cluster that match all given filters, sorted.

        `min_duration_ms`: open for longer (KIP-994). `pattern`: an RE2 expression that the whole id matches (KIP-1152);
        an invalid one raises BrokerError with INVALID_REGULAR_EXPRESSION.
        """
        wanted = several("states", states), several("producer_ids", producer_ids)
        return await self._run(transactions.list_all(*wanted, min_duration_ms, pattern), timeout_s)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, transactions.TransactionDescription]:
        """Describe transactional ids. An unknown id is a TransactionalIdNotFound. Raises PartialFailure."""
        names = several("transactional_ids", transactional_ids)
        return await self._run(every(transactions.describe(names)), timeout_s)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, transactions.FencedProducer]:
        """Fence the producers of transactional ids and abort their open transactions. Raises PartialFailure."""
        return await self._run(transactions.fence(several("transactional_ids", transactional_ids)), timeout_s)

    async def abort_transaction(
        self,
        partition: TopicPartition | tuple[str, int],
        producer: model.ProducerDescription,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Abort the transaction of a producer in a partition where it hangs: its coordinator has ended it already."""
        await self._run(only(transactions.abort(TopicPartition(*partition), producer)), timeout_s)

    # -- access ------------------------------------------------------------------------------------------------

    async def create_acls(self, acls: Iterable[Acl], *, timeout_s: float | None = None) -> None:
        """Create ACLs; every broker applies them soon after. Raises PartialFailure by Acl."""
        await self._run(every(access.create(several("acls", acls))), timeout_s)

    async def describe_acls(self, wanted: AclFilter | None = None, *, timeout_s: float | None = None) -> list[Acl]:
        """Return the matching ACLs, all without a filter. Raises ClusterAuthorizationFailed."""
        return await self._run(only(access.describe(wanted or AclFilter())), timeout_s)

    async def delete_acls(
        self, filters: Iterable[AclFilter | Acl], *, timeout_s: float | None = None
    ) -> dict[AclFilter, tuple[Acl, ...]]:
        """Delete the matching ACLs and return them by filter. An Acl as a filter matches only itself."""
        return await self._run(every(access.delete(several("filters", filters))), timeout_s)

    async def describe_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """Return the SCRAM mechanisms of these or all users. A user without credentials is a ResourceNotFound."""
        return await self._run(access.describe_scram(optional("users", users)), timeout_s)

    async def alter_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_s: float | None = None
    ) -> None:
        """Set or delete SCRAM credentials. Raises PartialFailure by user, ConfigurationError."""
        salts = iter(lambda: secrets.token_bytes(access.SALT_BYTES), b"")
        await self._run(every_of(access.alter_scram(several("changes", changes), salts)), timeout_s)

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
        timeout_s: float | None = None,
    ) -> DelegationToken:
        """Create a token for this client, or for another owner ("User:bob"); -1: the broker's maximum lifetime."""
        return await self._run(only(tokens.create(several("renewers", renewers), owner, max_lifetime_ms)), timeout_s)

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1, *, timeout_s: float | None = None) -> int:
        """Let a token expire `period_ms` from now (-1: the broker's period); returns the new expiry in ms."""
        return await self._run(only(tokens.renew(hmac, period_ms)), timeout_s)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1, *, timeout_s: float | None = None) -> int:
        """Let a token expire `period_ms` from now, or delete it at once (-1); returns the new expiry in ms."""
        return await self._run(only(tokens.expire(hmac, period_ms)), timeout_s)

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of these or all owners that this client may see, with their secrets."""
        return await self._run(only(tokens.describe(optional("owners", owners))), timeout_s)

    async def describe_client_quotas(
        self, wanted: QuotaEntity | None = None, *, strict: bool = False, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas (`QuotaName`) of the matching entities; with `strict`, none that have further fields."""
        return await self._run(only(access.describe_quotas(wanted or QuotaEntity(), strict)), timeout_s)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Set quotas of entities; None deletes a quota. Raises PartialFailure by entity, ConfigurationError."""
        await self._run(every(access.alter_quotas(changes, validate_only)), timeout_s)
