"""Rows of the table of mutations for mirrors between clusters."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

TOPICS = "tests/unit/controller/test_mirrors.py"
COPY = "tests/unit/broker/test_mirrored_partition.py"
SIMULATED = "tests/simulation/test_mirrored_replicas.py"
GROUPS = "tests/unit/broker/test_mirrored_groups.py"
COMPARISON = "tests/unit/tools/test_log_comparison.py"

ROWS: tuple[Row, ...] = (
    (
        "clients cannot write to a copied topic",
        "partitions/topic_settings.py",
        "    if is_read_only(values):\n",
        "    if False:\n",
        (f"{COPY}::test_clients_cannot_write_until_the_topic_is_open",),
    ),
    (
        "a copied topic is opened only after its producers were removed",
        "controller/mirrors.py",
        "    MIRRORING: (STOPPING,),\n",
        "    MIRRORING: (STOPPING, STOPPED),\n",
        (f"{TOPICS}::test_clients_can_only_request_the_moves_of_a_promotion",),
    ),
    (
        "the leader epoch of a copied partition is above its source's",
        "controller/mirrors.py",
        "        if always or epoch >= generation_start(partition.leader_epoch):\n",
        "        if always:\n",
        (f"{TOPICS}::test_source_that_reaches_the_generation_begins_a_later_one",),
    ),
    (
        "two clusters do not become each other's copies",
        "controller/mirrors.py",
        "    if is_failback and source.is_read_only:\n",
        "    if False:\n",
        (f"{TOPICS}::test_failback_begins_a_new_generation_in_one_step_with_the_state",),
    ),
    (
        "a recreated topic of the source does not continue the copy",
        "controller/mirrors.py",
        "    if local.topic_id != source.topic_id:\n",
        "    if False:\n",
        (f"{TOPICS}::test_recreated_shrunk_and_foreign_topics_are_problems_and_stay",),
    ),
    (
        "clients add no partitions to a copied topic",
        "controller/topics.py",
        "    late.mirrors.check_growth(state, topic.name)\n",
        "",
        (f"{TOPICS}::test_clients_create_no_mirrored_topic_and_add_no_partitions",),
    ),
    (
        "a mirror is not deleted before its topics are open",
        "controller/configs.py",
        "        if kind == TOPIC and settings.get(MIRROR_SETTING) == name and is_read_only(settings):\n",
        "        if False:\n",
        (f"{TOPICS}::test_mirror_with_read_only_topics_cannot_be_deleted",),
    ),
    (
        "after a truncation of a copy, the high watermark counts no records that followers still have to drop",
        "replication/leader.py",
        "            replica.log_end_offset = min(replica.log_end_offset, log_end_offset)\n",
        "            pass\n",
        (
            f"{COPY}::test_truncation_counts_records_and_the_high_watermark_waits_for_followers_again",
            f"{SIMULATED}::test_records_that_the_source_loses_are_dropped_on_each_replica_of_the_target",
        ),
    ),
    (
        "a copy is not truncated to the high watermark of a source that does not know its epoch",
        "replication/follower.py",
        "    return Step(Action.RESTART, source_start) if source_start > log.log_end_offset else _BACK_OFF\n",
        "    return Step(Action.RESTART, source_start)\n",
        (f"{COPY}::test_records_that_the_source_deleted_before_the_copy_are_skipped_and_counted",),
    ),
    (
        "a copy continues at the next leader of the source",
        "broker/mirrors/mirror.py",
        "            elif known.follow(row.leader_id, row.leader_epoch):\n",
        "            elif known is None:\n",
        ("tests/cluster/test_mirror.py::test_copy_promotion_and_failback_between_killed_brokers",),
    ),
    (
        "copied records are replicated and committed as produced ones",
        "partitions/partition.py",
        "                self._grown(len(records), now_ms)\n",
        "                pass\n",
        (
            f"{COPY}::test_copy_has_the_bytes_epochs_and_transactions_of_the_source",
            "tests/cluster/test_mirror.py::test_replicas_of_the_target_are_equal_after_its_leader_was_killed",
        ),
    ),
    (
        "a promotion removes every producer and aborts open transactions",
        "broker/mirrors/mirror.py",
        "    for entry in list(partition.log.producers.entries.values()):\n",
        "    for entry in list(partition.log.producers.entries.values())[:0]:\n",
        (f"{COPY}::test_promotion_aborts_open_transactions_and_forgets_every_producer",),
    ),
    (
        "an earlier leader of the source is not followed",
        "partitions/replication/mirrored.py",
        "        if leader_epoch < self.leader_epoch or (",
        "        if (",
        (f"{COPY}::test_batch_of_a_later_epoch_than_the_request_is_not_appended",),
    ),
    (
        "a producer of the target is not taken for one of the source with the same id",
        "log/producer_state.py",
        "            del self.entries[producer_id]\n        entry.coordinator_epoch",
        "            pass\n        entry.coordinator_epoch",
        (
            f"{COPY}::test_producer_with_an_id_of_the_source_is_not_taken_for_its_namesake",
            f"{COPY}::test_recovery_and_replicas_forget_the_same_producers",
        ),
    ),
    (
        "a planned promotion waits for the last records of the source",
        "cli/mirror.py",
        "        _wait_for_last_records(admin, options.name, copying, deadline_s)\n",
        "        pass\n",
        ("tests/chaos/test_mirror.py::test_copies_are_equal_and_promotion_loses_nothing_under_kills",),
    ),
    (
        "a truncation of a copy is on disk before the next append",
        "partitions/replication/mirrored.py",
        "        self.is_truncation_synced = False\n        synced",
        "        synced",
        (f"{COPY}::test_truncation_is_synced_before_the_next_fetch",),
    ),
    (
        "verify finds one changed byte of a copy",
        "tools/admin/log_comparison.py",
        "        if one.data == other.data:\n",
        "        if len(one.data) == len(other.data):\n",
        (
            f"{COMPARISON}::test_one_changed_record_is_found_by_its_offset",
            f"{COMPARISON}::test_one_changed_byte_is_found_in_its_batch",
        ),
    ),
    (
        "verify finds a batch that only one cluster has",
        "tools/admin/log_comparison.py",
        '            self._note(Difference(header.base_offset, header.last_offset, f"only',
        '            print(Difference(header.base_offset, header.last_offset, f"only',
        (f"{COMPARISON}::test_missing_batch_is_a_difference_unless_the_topic_is_compacted",),
    ),
    (
        "the dry run of a failback counts all records behind the last common epoch",
        "tools/admin/mirror_verification.py",
        "            return min(one.end_offset, other.end_offset)\n",
        "            return max(one.end_offset, other.end_offset)\n",
        (f"{COMPARISON}::test_common_end_is_where_the_last_common_epoch_ends_first",),
    ),
    (
        "a copy does not truncate the log of a partition that is led elsewhere",
        "partitions/partition.py",
        "        self.check_open()\n        # Records of the source",
        "        # Records of the source",
        (f"{COPY}::test_copy_of_a_partition_that_is_led_elsewhere_changes_no_record",),
    ),
    (
        "a copy does not move the log start of a partition that is led elsewhere",
        "partitions/replication/mirrored.py",
        "        self.partition.check_open()\n        progress",
        "        progress",
        (f"{COPY}::test_copy_of_a_partition_that_is_led_elsewhere_changes_no_record",),
    ),
    (
        "a request that waits for a record fails when a copy drops it",
        "partitions/partition.py",
        "        self._waits.fail(KafkaError(ErrorCode.NOT_LEADER",
        "        print(KafkaError(ErrorCode.NOT_LEADER",
        (f"{COPY}::test_request_that_waits_for_a_dropped_record_fails",),
    ),
    (
        "a copy ends with the leadership, whether the source answers or not",
        "broker/mirrors/mirror.py",
        "            if copy.partition.closed or self._states.get(key.topic) != MIRRORING:\n",
        "            if self._states.get(key.topic) != MIRRORING:\n",
        (f"{COPY}::test_copy_ends_at_once_though_the_source_does_not_answer",),
    ),
    (
        "a promotion ends the copy, whether the source answers or not",
        "broker/mirrors/mirror.py",
        "            if copy.partition.closed or self._states.get(key.topic) != MIRRORING:\n",
        "            if copy.partition.closed:\n",
        (f"{COPY}::test_copy_ends_at_once_though_the_source_does_not_answer",),
    ),
    (
        "the high watermark of a copy goes back with a truncation",
        "partitions/partition.py",
        "        self.high_watermark = self.log.high_watermark\n        if self._replication is not None:\n",
        "        if self._replication is not None:\n",
        (
            f"{SIMULATED}::test_records_that_the_source_loses_are_dropped_on_each_replica_of_the_target",
            f"{SIMULATED}::test_target_equals_the_source_after_failures_and_unclean_elections",
        ),
    ),
    (
        "a copied offset does not replace one that the group has committed here since the last copy",
        "broker/mirrors/groups.py",
        "            return local == known\n",
        "            return True\n",
        (f"{GROUPS}::test_offset_that_the_group_committed_here_is_not_moved_back",),
    ),
    (
        "without a known copy, an offset is not moved back",
        "broker/mirrors/groups.py",
        "        return local.offset < wanted.offset\n",
        "        return True\n",
        (f"{GROUPS}::test_offset_that_the_group_committed_here_is_not_moved_back",),
    ),
    (
        "copies that another coordinator has continued are forgotten",
        "broker/mirrors/groups.py",
        "            if name in epochs and epochs[name] == self._epochs.get(name) and",
        "            if name in epochs and",
        (f"{GROUPS}::test_known_copy_of_another_coordinator_is_continued",),
    ),
    (
        "offsets of a topic that was opened meanwhile are not copied",
        "broker/mirrors/groups.py",
        "            if is_read_only(image.config(TOPIC, partition.topic))\n",
        "            if image\n",
        (f"{GROUPS}::test_topic_that_was_opened_meanwhile_and_pending_offsets_are_not_committed",),
    ),
    (
        "a copied offset does not replace one that a transaction commits here",
        "broker/mirrors/groups.py",
        "group_id=group_id, topics=topics), require_stable=True)",
        "group_id=group_id, topics=topics), require_stable=False)",
        (f"{GROUPS}::test_topic_that_was_opened_meanwhile_and_pending_offsets_are_not_committed",),
    ),
    (
        "a planned promotion waits for offsets that could not be read",
        "broker/mirrors/groups.py",
        "        if self._is_complete:\n",
        "        if True:\n",
        (f"{GROUPS}::test_unreadable_partition_delays_only_its_own_offsets",),
    ),
    (
        "a planned promotion waits for offsets that the source has accepted before its command",
        "broker/mirrors/groups.py",
        "            self.copied_ms = begun_ms\n",
        "            self.copied_ms = self._node.clock.monotonic_ms()\n",
        (f"{GROUPS}::test_unreadable_partition_delays_only_its_own_offsets",),
    ),
)
