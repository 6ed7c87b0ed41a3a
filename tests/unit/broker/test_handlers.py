"""The table of handlers is complete, and the type checker proves that `Broker` has what each handler uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.context import RequestContext
from ottla.broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from ottla.broker.served import HANDLERS

HANDLES: tuple[Callable[[Broker, RequestContext, Any], object], ...] = (
    alter_configs.handle,
    alter_partition_reassignments.handle,
    api_versions.handle,
    create_partitions.handle,
    create_topics.handle,
    delete_groups.handle,
    delete_records.handle,
    delete_topics.handle,
    describe_cluster.handle,
    describe_configs.handle,
    describe_groups.handle,
    describe_log_dirs.handle,
    describe_producers.handle,
    describe_quorum.handle,
    describe_topic_partitions.handle,
    elect_leaders.handle,
    fetch.handle,
    find_coordinator.handle,
    heartbeat.handle,
    incremental_alter_configs.handle,
    init_producer_id.handle,
    join_group.handle,
    leave_group.handle,
    list_config_resources.handle,
    list_groups.handle,
    list_offsets.handle,
    list_partition_reassignments.handle,
    metadata.handle,
    offset_commit.handle,
    offset_delete.handle,
    offset_fetch.handle,
    offset_for_leader_epoch.handle,
    produce.handle,
    streams_group_describe.handle,
    streams_group_heartbeat.handle,
    sync_group.handle,
    unregister_broker.handle,
    update_features.handle,
    write_txn_markers.handle,
)


def test_broker_satisfies_the_protocol_of_every_handler() -> None:
    assert {handle.__module__.rpartition(".")[2] for handle in HANDLES} == set(HANDLERS.values())
