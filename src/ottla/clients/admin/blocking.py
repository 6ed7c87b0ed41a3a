"""The blocking admin client: each method runs the method of `AsyncAdmin` with the same name on a loop in a thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.typed_settings import CommonConfig

P = ParamSpec("P")
R = TypeVar("R")


def blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    """Return a method of `Admin` that waits for this method of `AsyncAdmin`.

    It has the signature and docstring of `method`, for type checkers (`P`, `R`) and `inspect` (`functools.wraps`).
    """

    @functools.wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._driver.run(method(self._async, *args, **kwargs))

    call.__module__, call.__qualname__ = __name__, f"Admin.{method.__name__}"
    return call


class Admin:
    """Manages a cluster: topics, configuration, groups, offsets, brokers. Every method blocks.

        with Admin("localhost:9092") as admin:
            admin.create_topic("orders", partitions=6)

    Settings (`options.COMMON_OPTIONS`) have Kafka's names or Pythonic ones, as keywords or in `config`; a mapping may
    be the first argument too, as with the other clients.

    A method about one thing returns its result or raises its error: a BrokerError whose class or `code` names the
    broker's objection, or a network error (see `errors`). A method about several things returns a dict. If some of them
    failed, it raises one PartialFailure, an exception group with `errors` and `results`. Each method retries while a
    broker is not ready or not responsible, until `timeout_s` (default.api.timeout.ms) is over.

    Threads may share an `Admin`. After a fork each process needs its own.
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

    start = blocking(AsyncAdmin.start)
    client_instance_id = blocking(AsyncAdmin.client_instance_id)

    def close(self) -> None:
        """Close the connections; calls in progress fail with Closed."""
        self._dropped.detach()
        if not self._driver.closed:
            self._driver.run(self._async.close())
            self._driver.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # also Ctrl-C: without `__exit__` nothing else would stop the thread
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- topics ------------------------------------------------------------------------------------------------

    create_topic = blocking(AsyncAdmin.create_topic)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topic = blocking(AsyncAdmin.describe_topic)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    delete_records = blocking(AsyncAdmin.delete_records)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)

    # -- configuration -----------------------------------------------------------------------------------------

    describe_config = blocking(AsyncAdmin.describe_config)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    mirror_status = blocking(AsyncAdmin.mirror_status)
    alter_config = blocking(AsyncAdmin.alter_config)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    list_config_resources = blocking(AsyncAdmin.list_config_resources)

    # -- offsets -----------------------------------------------------------------------------------------------

    list_offsets = blocking(AsyncAdmin.list_offsets)
    fetch_batches = blocking(AsyncAdmin.fetch_batches)
    ends_of_epochs = blocking(AsyncAdmin.ends_of_epochs)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    list_offsets_of_groups = blocking(AsyncAdmin.list_offsets_of_groups)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    list_share_group_offsets = blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AsyncAdmin.delete_share_group_offsets)
    group_lag = blocking(AsyncAdmin.group_lag)

    # -- groups ------------------------------------------------------------------------------------------------

    list_groups = blocking(AsyncAdmin.list_groups)
    describe_group = blocking(AsyncAdmin.describe_group)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_group = blocking(AsyncAdmin.delete_group)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    remove_group_members = blocking(AsyncAdmin.remove_group_members)

    # -- the cluster -------------------------------------------------------------------------------------------

    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    describe_features = blocking(AsyncAdmin.describe_features)
    describe_features_of = blocking(AsyncAdmin.describe_features_of)
    update_features = blocking(AsyncAdmin.update_features)
    describe_quorum = blocking(AsyncAdmin.describe_quorum)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)

    # -- transactions ------------------------------------------------------------------------------------------

    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)

    # -- access ------------------------------------------------------------------------------------------------

    create_acls = blocking(AsyncAdmin.create_acls)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    describe_scram_credentials = blocking(AsyncAdmin.describe_scram_credentials)
    alter_scram_credentials = blocking(AsyncAdmin.alter_scram_credentials)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_token = blocking(AsyncAdmin.describe_delegation_token)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
