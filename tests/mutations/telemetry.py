"""Rows of the table of mutations for the metrics that clients push."""

from __future__ import annotations

from typing import Final

TESTS = "tests/unit/broker/telemetry"
SERIES = f"{TESTS}/test_series.py"
RECEIVER = f"{TESTS}/test_receiver.py"
INSTANCES = f"{TESTS}/test_instances.py"
OTLP = "tests/protocol/test_otlp.py"
NETWORK = "tests/unit/clients/test_network.py"
PUSHER = "tests/unit/clients/test_telemetry.py"

ROWS: Final = (
    (
        "Large clients cannot hide the metrics of others",
        "broker/telemetry/series.py",
        "return self._count < MOST_SERIES or self._takes_place(client, instance_id)",
        "return self._count < MOST_SERIES",
        (f"{SERIES}::test_large_clients_cannot_hide_others",),
    ),
    (
        "A user with many clients cannot keep the clients of others out",
        "broker/telemetry/series.py",
        "        if len(own) >= MOST_CLIENTS // (len(self._by_user) + (not own)):",
        "        if own is not None:",
        (f"{SERIES}::test_user_with_many_clients_cannot_keep_others_out",),
    ),
    (
        "A user does not take more than its share of the clients",
        "broker/telemetry/series.py",
        "        if len(own) >= MOST_CLIENTS // (len(self._by_user) + (not own)):",
        "        if own is None:",
        (f"{SERIES}::test_user_with_many_clients_cannot_keep_others_out",),
    ),
    (
        "A user with many clients leaves others their share of the series",
        "broker/telemetry/series.py",
        "        if user.count < share:",
        "        if user.count < 0:",
        (f"{SERIES}::test_user_with_many_clients_leaves_others_their_share_of_the_series",),
    ),
    (
        "An unhandled error does not end the pushes of a client",
        "clients/telemetry.py",
        "                code, delay_s = ErrorCode.NONE, AFTER_ERROR_S\n",
        "                return\n",
        (f"{PUSHER}::test_unhandled_error_is_logged_once_and_pushes_go_on",),
    ),
    (
        "A push cannot use more memory than its limit when it is decompressed",
        "broker/telemetry/receiver.py",
        "request.metrics, MOST_DECOMPRESSED * self._max_bytes)",
        "request.metrics)",
        (f"{RECEIVER}::test_push_that_grows_when_decompressed_is_refused_without_the_memory",),
    ),
    (
        "The fields of a push are bounded",
        "protocol/otlp.py",
        "if self._left < 0:",
        "if False:",
        (f"{OTLP}::test_fields_are_bounded_and_yield_without_memory",),
    ),
    (
        "Reading a push lets other work run, also without points in it",
        "protocol/otlp.py",
        "return self._left % FIELDS_AT_ONCE == 0",
        "return False",
        (
            f"{OTLP}::test_fields_are_bounded_and_yield_without_memory",
            f"{RECEIVER}::test_push_of_fields_without_points_lets_other_work_run",
        ),
    ),
    (
        "A push is limited by telemetry.max.bytes",
        "broker/telemetry/receiver.py",
        "if len(request.metrics) > self._max_bytes:",
        "if False:",
        (f"{RECEIVER}::test_bad_push_gets_its_error",),
    ),
    (
        "The number of client instances is bounded",
        "broker/telemetry/instances.py",
        "if len(instances) <= self._most and oldest.expires_ms > now_ms:",
        "if oldest.expires_ms > now_ms:",
        (f"{INSTANCES}::test_least_recently_used_client_is_dropped_above_the_limit",),
    ),
    (
        "A client pushes once in an interval",
        "broker/telemetry/instances.py",
        "if not instance.may_push(now_ms) and not is_terminating:",
        "if False:",
        (f"{RECEIVER}::test_next_push_has_to_wait_for_the_interval_unless_it_is_the_last",),
    ),
    (
        "The number of clients' series is bounded",
        "broker/telemetry/series.py",
        "        return self._count < MOST_SERIES or",
        "        return True or",
        (f"{SERIES}::test_series_of_a_client_and_of_the_node_are_bounded",),
    ),
    (
        "The number of names that clients choose is bounded",
        "broker/telemetry/series.py",
        "if name not in self._counters and len(self._counters) >= MOST_NAMES:",
        "if False:",
        (f"{SERIES}::test_names_and_labels_are_bounded",),
    ),
    (
        "One client cannot take all names",
        "broker/telemetry/series.py",
        "if name not in client.names and len(client.names) >= MOST_NAMES_OF_CLIENT:",
        "if False:",
        (f"{SERIES}::test_name_is_free_when_no_client_has_it_and_one_client_has_not_all",),
    ),
    (
        "A name that no client has any more leaves its place to another",
        "broker/telemetry/series.py",
        "if not self._users[name]:",
        "if False:",
        (f"{SERIES}::test_name_is_free_when_no_client_has_it_and_one_client_has_not_all",),
    ),
    (
        "The number of clients with values is bounded",
        "broker/telemetry/series.py",
        "and len(self._clients) >= MOST_CLIENTS and not",
        "and False and not",
        (f"{SERIES}::test_client_is_stored_with_its_first_value_and_until_its_last",),
    ),
    (
        "The number of series of one client is bounded",
        "broker/telemetry/series.py",
        "if len(client.values) >= MOST_SERIES_OF_CLIENT or ",
        "if ",
        (f"{SERIES}::test_series_of_a_client_and_of_the_node_are_bounded",),
    ),
    (
        "The labels of a series are bounded together",
        "broker/telemetry/series.py",
        " or len(labels) > LONGEST_LABELS:",
        ":",
        (f"{SERIES}::test_labels_of_one_series_are_bounded_together",),
    ),
    (
        "A value that is deleted does not leave its key",
        "broker/telemetry/series.py",
        "client.pushed.discard(key)",
        "pass",
        (f"{SERIES}::test_value_that_is_removed_leaves_nothing",),
    ),
    (
        "A connection has one client instance at a time",
        "broker/telemetry/receiver.py",
        "elif previous != instance_id and self._instances.remove(previous, connection):",
        "elif False:",
        (f"{RECEIVER}::test_connection_with_another_instance_id_releases_the_previous_one",),
    ),
    (
        "The labels that describe a client are bounded",
        "broker/telemetry/receiver.py",
        "text[:LONGEST_LABEL] for text",
        "text for text",
        (f"{RECEIVER}::test_labels_of_a_client_are_truncated",),
    ),
    (
        "A client cannot replace the labels that identify it",
        "broker/telemetry/series.py",
        "if name not in _OWN:",
        "if True:",
        (f"{SERIES}::test_client_cannot_replace_the_labels_of_the_broker",),
    ),
    (
        "A client cannot replace a metric of the broker",
        "broker/telemetry/series.py",
        "return PREFIX + point.name",
        "return point.name",
        (f"{SERIES}::test_client_cannot_replace_a_metric_of_the_node",),
    ),
    (
        "Values of lost clients are removed",
        "broker/telemetry/series.py",
        "if client.expires_ms <= now_ms]",
        "if False]",
        (f"{SERIES}::test_values_expire_after_the_last_push_and_soon_after_a_disconnection",),
    ),
    (
        "Values that a client does not push any more are removed",
        "broker/telemetry/series.py",
        "for key in client.values.keys() - client.pushed - client.deltas:",
        "for key in set[tuple[str, str]]():",
        (f"{SERIES}::test_values_that_a_push_lacks_are_removed_but_not_sums_of_differences",),
    ),
    (
        "A client that closes does not begin to push again",
        "clients/telemetry.py",
        "if not self._closed and self._task is None",
        "if self._task is None",
        (f"{PUSHER}::test_connection_that_opens_during_close_does_not_begin_again",),
    ),
    (
        "A client closes its connections also if its last push is cancelled",
        "clients/network.py",
        "        finally:\n            # Also if the last push is cancelled.\n",
        "        except ClientError:\n",
        (f"{NETWORK}::test_close_that_is_cancelled_during_the_last_push_closes_the_connections",),
    ),
)
