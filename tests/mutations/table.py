"""Table: the code that protects each guarantee of docs/reliability.md, the code without it, and the failing tests.

`old` is in `path` exactly once; `new` takes its place. Each test of a row must fail, alone.
"""

from __future__ import annotations

from typing import NamedTuple

CHAOS, STORAGE, FUZZ, UNIT = "tests/chaos", "tests/storage", "tests/fuzz", "tests/unit"
HOSTILE = f"{FUZZ}/test_hostile_clients.py"
SERVER = f"{UNIT}/network/test_server.py"
CORRUPT_BYTE = f"{STORAGE}/test_corrupt_bytes.py::test_corrupt_byte_costs_only_what_it_touches"
MARKERS = f"{UNIT}/broker/test_transaction_markers.py"
TRANSACTIONAL_OFFSETS = f"{CHAOS}/test_transactional_offsets.py"
TRANSACTIONS = f"{UNIT}/broker/test_transactions.py"
FAILING = f"{STORAGE}/test_failing_disk.py"
PLANNED = f"{STORAGE}/test_planned_log.py"
DELETED_BEGINNING = "test_open_transaction_is_remembered_after_its_first_records_were_deleted"
RESTARTS = f"{CHAOS}/test_restarts.py"
FLUSH = f"{UNIT}/broker/test_flush_before_ack.py"
CLEANER = f"{STORAGE}/test_failing_cleaner.py"
CLOCK = f"{CHAOS}/test_clock.py"
OVERLOAD = f"{CHAOS}/test_overload.py"
LIMITS = f"{CHAOS}/test_process_limits.py"
ELECTIONS, REPLICATION = f"{UNIT}/raft/test_elections.py", f"{UNIT}/raft/test_replication.py"
VOTERS = f"{UNIT}/raft/test_voter_changes.py"
REPLICAS = f"{UNIT}/replication"
REPLICAS_WORLD = f"{REPLICAS}/test_world.py::test_committed_records_survive"
REPLICATED = "tests/simulation/test_replicas.py"
RAFT = "tests/simulation/test_raft.py"
RAFT_SEEDS = f"{RAFT}::test_committed_records_survive_everything"
EXACTLY_ONCE_SEEDS = "tests/simulation/test_exactly_once.py::test_acknowledged_records_appear_once_and_in_order"
SHELL_SEEDS = "tests/simulation/test_shells.py::test_nodes_agree_on_the_metadata_and_keep_what_they_acknowledge"
CONTROLLER_SEEDS = "tests/simulation/test_controllers.py::test_committed_metadata_survives_everything"
REPLICATION_SEEDS = "tests/simulation/test_replication.py::test_acknowledged_records_survive_everything"


class Mutation(NamedTuple):
    """A protection and how it is taken out."""

    protection: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


CLUSTER_SEED = "tests/simulation/test_cluster.py::test_cluster_keeps_its_promises"
MANY_SEEDS = (("OTTLA_SEEDS", "100"),)
# A seed of the whole cluster repeats only if sets of names have the same order.
CLUSTER_SEEDS = (("OTTLA_SEEDS", "20"), ("PYTHONHASHSEED", "0"))
MANY_BYTES = (("OTTLA_CORRUPT_BYTES", "25"),)
FALLBACK = (("OTTLA_KERNELS", "fallback"),)

WIRE = (
    Mutation(
        "half-received frames share a bounded memory",
        "network/receive_memory.py",
        "        if not self.fits(size - len(buffer)) and self._exempt is not owner:\n",
        "        if size < 0:\n",
        (f"{SERVER}::test_half_received_frames_share_a_bounded_memory_and_all_complete",),
    ),
    Mutation(
        "half-received frames share a bounded memory, measured on the process",
        "network/receive_memory.py",
        "        return self.used_bytes + more_bytes <= self.max_used_bytes\n",
        "        return True\n",
        (f"{HOSTILE}::test_half_frames_slow_senders_and_clients_that_never_read",),
    ),
    Mutation(
        "a cached metadata response does not prevent the creation of a topic",
        "broker/handlers/metadata.py",
        "        request.allow_auto_topic_creation,  # a request that creates topics must not get a cached response\n",
        "",
        (f"{UNIT}/broker/test_metadata.py::test_cached_response_without_topic_creation_does_not_prevent_creation",),
    ),
    Mutation(
        "a release of memory wakes only the connections that it serves",
        "network/receive_memory.py",
        "        while waiters:\n"
        "            waiter = waiters.popleft()\n"
        "            waiter.memory_available()\n"
        "            if waiters and waiters[-1] is waiter:\n",
        "        for _ in range(len(waiters)):\n"
        "            waiters.popleft().memory_available()\n"
        "            if False:\n",
        (f"{SERVER}::test_waking_waiters_for_memory_has_linear_cost",),
    ),
    Mutation(
        "a claimed frame size allocates no memory",
        "network/buffers.py",
        "    return min(needed, max(trusted, 2 * received))\n",
        "    return needed\n",
        (f"{SERVER}::test_claimed_size_takes_no_memory_until_bytes_arrive",),
    ),
    Mutation(
        "memory of half-received frames goes back to the system",
        "network/buffers.py",
        "    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n",
        "    return bytearray(size)  # type: ignore[return-value]\n",
        (f"{LIMITS}::test_half_received_frames_use_and_release_the_memory_of_arrived_bytes[half-received frames]",),
    ),
    Mutation(
        "a burst of large requests does not leave its buffers in the pool",
        "network/buffers.py",
        "            del free[:idle]\n",
        "            idle = 0\n",
        (f"{UNIT}/network/test_buffers.py::test_trim_releases_buffers_that_were_not_used_since_the_last_trim",),
    ),
    Mutation(
        "a frame has a maximum size",
        "network/frame_reader.py",
        "        if not 0 <= size <= largest:\n",
        "        if size < 0:\n",
        (f"{SERVER}::test_impossible_size_closes_only_its_connection",),
    ),
    Mutation(
        "requests of a client that does not read its responses are not handled",
        "network/connection.py",
        "        self._writes.pause(self._server.tick, unsent_bytes)\n",
        "        self._writes.stalled_ticks(self._server.tick, unsent_bytes)\n",
        (f"{HOSTILE}::test_many_requests_in_flight_whose_responses_are_not_read",),
    ),
    Mutation(
        "large responses stay in their files until they are sent",
        "log/segment_list.py",
        "UNREAD_BYTES = 64 * 1024\n",
        "UNREAD_BYTES = 1 << 40\n",
        (f"{HOSTILE}::test_clients_that_fetch_much_and_read_nothing",),
    ),
    Mutation(
        "a descriptor stays open for its readers",
        "log/open_files.py",
        "        if fd in self._pins:\n",
        "        if not self._pins:\n",
        ("tests/storage/test_slices.py::test_slice_is_readable_after_its_segment_was_closed_or_deleted",),
    ),
    Mutation(
        "a client that never reads its responses is disconnected",
        "network/connection.py",
        "if stalled_ticks > slow_ticks else None",
        "if stalled_ticks < 0 else None",
        (f"{SERVER}::test_client_that_reads_nothing_uses_little_memory_and_is_disconnected",),
    ),
    Mutation(
        "read-ahead is bounded while a request is in progress",
        "network/frame_reader.py",
        "        if not may_grow:\n            return self._end < len(buffer)\n",
        "        if not may_grow and self._end < len(buffer):\n            return True\n",
        (f"{SERVER}::test_long_wait_stops_reading_beyond_the_read_ahead",),
    ),
    Mutation(
        "one connection handles a bounded number of frames at a time",
        "network/connection.py",
        "                left -= 1\n",
        "                left -= 0\n",
        (f"{SERVER}::test_thousands_of_frames_in_one_read_do_not_delay_other_connections",),
    ),
    Mutation(
        "overload: connections that pipeline share an event loop iteration",
        "network/connection.py",
        "        quota = server.quota.per_connection if self._quota_round != server.quota.round else self._quota_left",
        "        quota = 1 << 40",
        (f"{SERVER}::test_a_hundred_pipelining_connections_share_an_event_loop_iteration",),
    ),
    Mutation(
        "an idle connection owns no buffer",
        "network/connection.py",
        '        self._transport = cast("asyncio.Transport", transport)\n',
        '        self._transport = cast("asyncio.Transport", transport)\n'
        '        self.state["buffer"] = bytearray(b"1" * 65536)\n',
        (f"{HOSTILE}::test_five_thousand_connections_and_a_storm",),
    ),
    Mutation(
        "a bad request is logged as one line, without a traceback",
        "network/connection.py",
        "        if isinstance(error, (KafkaError, DecodeError)) or (",
        "        if isinstance(error, KeyError) or (",
        (f"{HOSTILE}::test_corrupted_frames_of_every_api",),
    ),
    Mutation(
        "lines that clients cause are rate-limited",
        "common/rate_limit.py",
        "        if self._lines >= self._most_lines:\n",
        "        if self._lines < 0:\n",
        (f"{HOSTILE}::test_random_bytes_make_few_log_lines",),
    ),
    Mutation(
        "the number of connections is limited",
        "network/server.py",
        "        if len(self.connections) > limits.max_connections:\n",
        "        if not self.connections:\n",
        (f"{SERVER}::test_connections_beyond_the_limit_are_rejected_until_one_closes",),
    ),
    Mutation(
        "overload: new connections above the allowed rate wait",
        "network/server.py",
        "        return min(self._next_creation_s - now_s, MOST_CREATION_DELAY_S)\n",
        "        return 0.0\n",
        (f"{SERVER}::test_new_connections_are_opened_at_the_allowed_rate",),
    ),
    Mutation(
        "what a batch says of itself is checked",
        "records/validation.py",
        "    if last_delta + 1 != count:\n",
        "    if count < 0:\n",
        (f"{HOSTILE}::test_batches_with_false_headers_and_decompression_bombs",),
    ),
    Mutation(
        "what need not be unpacked is not",
        "records/validation.py",
        "    if rules.compacted:\n        return True\n",
        "    if rules.topic:\n        return True\n",
        (f"{HOSTILE}::test_batches_with_false_headers_and_decompression_bombs",),
    ),
    Mutation(
        "what is unpacked has a bound",
        "records/validation.py",
        "        return payload(buffer, 0, header, most)\n",
        "        return payload(buffer, 0, header)\n",
        (f"{HOSTILE}::test_decompression_bombs_in_batches_that_must_be_decompressed",),
    ),
    Mutation(
        "an unreadable request is distinguished from an unhandled error",
        "protocol/_decoding.py",
        "        except (DecodeError, UnicodeDecodeError) as error:\n",
        "        except DecodeError as error:\n",
        (
            f"{FUZZ}/test_fuzz_requests.py::test_any_request_is_answered_or_rejected",
            f"{FUZZ}/test_recorded_requests.py::test_corrupted_recorded_requests_are_answered_or_rejected",
            f"{FUZZ}/test_recorded_requests.py::test_hypothesis_finds_no_request_with_an_unhandled_error",
        ),
        FALLBACK,
    ),
)

LARGEST = f"{FUZZ}/test_largest_requests.py"
WORK = f"{UNIT}/broker/test_work.py"
LONG_REQUESTS = f"{UNIT}/broker/test_long_requests.py"

BOUNDED_WORK = (
    Mutation(
        "long work is executed in slices",
        "broker/work.py",
        "            elif now_ms() >= until_ms and self.later is not None:\n",
        "            elif False:\n",
        (
            f"{WORK}::test_long_work_leaves_time_for_other_requests",
            f"{LARGEST}::test_largest_request_of_each_api_does_not_block_other_clients[OffsetFetch]",
        ),
    ),
    Mutation(
        "all unfinished work shares the time of an iteration",
        "broker/work.py",
        "        waiting: Completion[Any] | None = None\n        if self._left_ms > 0 or self.later is None:\n",
        "        waiting: Completion[Any] | None = None\n        if True:\n",
        (f"{WORK}::test_tasks_that_start_in_one_iteration_share_its_time",),
    ),
    Mutation(
        "a limited number of large requests are decoded at a time",
        "broker/work.py",
        "            while self._held_back and self._large < MOST_LARGE:\n",
        "            while self._held_back:\n",
        (f"{WORK}::test_number_of_decoded_large_requests_is_limited",),
    ),
    Mutation(
        "work for a disconnected client is cancelled",
        "broker/work.py",
        "        if task.client is not None and task.client.closed:\n",
        "        if False:\n",
        (f"{WORK}::test_work_for_a_disconnected_client_is_cancelled",),
    ),
    Mutation(
        "a request has a bounded number of array elements",
        "protocol/message.py",
        '        namespace["MOST_ELEMENTS"] = MAX_PRODUCE_ELEMENTS if key == PRODUCE else MAX_REQUEST_ELEMENTS\n',
        '        namespace["MOST_ELEMENTS"] = -1\n',
        (
            "tests/protocol/test_bounded_decoding.py::test_request_of_a_client_is_bounded_and_an_answer_is_not",
            "tests/protocol/test_bounded_decoding.py::test_produce_request_has_a_limit_of_its_own",
        ),
    ),
    Mutation(
        "a resource that a request names several times is encoded once",
        "broker/handlers/describe_configs.py",
        "        encoded = self._encoded.get(key)\n",
        "        encoded = None\n",
        (f"{LARGEST}::test_repeated_resource_is_described_once",),
    ),
    Mutation(
        "a request to the controller makes a bounded number of records",
        "controller/state.py",
        "    if len(records) > MAX_RECORDS_PER_REQUEST:\n",
        "    if False:\n",
        (f"{UNIT}/controller/test_topics.py::test_too_large_request_is_rejected_as_a_whole",),
    ),
    Mutation(
        "the controller decides one operation at a time",
        "broker/metadata_log.py",
        "        if not self._deciding:\n            self._deciding = True\n",
        "        if True:\n            self._deciding = True\n",
        (f"{LONG_REQUESTS}::test_operations_of_the_controller_wait_for_each_other",),
    ),
    Mutation(
        "a session that is read in slices rejects other requests",
        "broker/fetch_session.py",
        "        if session.epoch != epoch or session.is_busy:\n",
        "        if session.epoch != epoch:\n",
        (f"{LONG_REQUESTS}::test_session_that_is_read_in_slices_rejects_other_requests",),
    ),
    Mutation(
        "a recreated topic does not get the logs of the deleted topic",
        "broker/partitions.py",
        "        if topic_partition in self._undeleted:",
        "        if False:",
        (f"{UNIT}/broker/test_opening.py::test_recreated_topic_does_not_get_the_old_logs",),
    ),
)

ON_DISK = (
    Mutation(
        "compaction checks the batches that it rewrites",
        "log/compaction.py",
        "        if not check_crc(data, 0, len(data)):\n",
        "        if not data:\n",
        (f"{STORAGE}/test_cleaner.py::test_corrupt_batch_gets_no_new_checksum_and_cleaning_is_retried",),
    ),
    Mutation(
        "a cleaning of a log that was cut meanwhile is thrown away",
        "log/cleaner.py",
        "            if log.segments.unsynced.truncations != running.truncations:\n",
        "            if running.truncations < 0:\n",
        (f"{STORAGE}/test_cleaner.py::test_result_for_a_truncated_log_is_discarded",),
    ),
    Mutation(
        "a swap that a crash cut short is completed",
        "log/recovery.py",
        "    swaps = [name for name in swaps if _offset_of(name) < first_cleaned]\n",
        "    for name in swaps:\n        if files.exists(f'{directory}/{name}'):\n"
        "            files.unlink(f'{directory}/{name}')\n    swaps = []\n",
        (f"{STORAGE}/test_cleaner.py::test_a_crash_at_any_moment_of_a_cleaning_loses_nothing",),
    ),
    Mutation(
        "a corrupt metadata log is rejected",
        "broker/metadata_loading.py",
        "            if not check_crc(data, position, header.size):\n                raise corrupt_log(",
        "            if not data:\n                raise corrupt_log(",
        (f"{UNIT}/broker/test_metadata_log.py::test_corrupt_synced_byte_is_rejected_with_its_position",),
    ),
    Mutation(
        "a metadata log without one of its segments is rejected",
        "broker/metadata_loading.py",
        "            if header.base_offset > offset:\n",
        "            if header.base_offset > log.log_end_offset:\n",
        (f"{UNIT}/broker/test_metadata_log.py::test_missing_metadata_segment_is_an_error_not_an_empty_log",),
    ),
    Mutation(
        "no producer id comes twice, nor after a snapshot of the metadata",
        "metadata/snapshot.py",
        "    if image.producer_ids_next:\n",
        "    if image.producer_ids_next < 0:\n",
        (f"{STORAGE}/test_topic_lifecycle.py::test_topics_keep_their_own_state_after_every_crash",),
    ),
    Mutation(
        "offsets of a deleted topic are deleted with it",
        "coordinators/group/shard.py",
        "        effects = offsets.delete_outdated(self._core, topic_id) if topic_id is not None else []\n",
        "        effects: Effects = []\n",
        (f"{STORAGE}/test_topic_lifecycle.py::test_topics_keep_their_own_state_after_every_crash",),
    ),
    Mutation(
        "a metadata log without its synced end is rejected",
        "broker/metadata_loading.py",
        "    if log.log_end_offset < synced:\n",
        "    if log.log_end_offset < 0:\n",
        (f"{UNIT}/broker/test_metadata_log.py::test_corrupt_synced_byte_is_rejected_with_its_position",),
    ),
    Mutation(
        "a corrupt metadata snapshot is skipped",
        "broker/metadata_snapshots.py",
        "        if not check_crc(data, position, header.size):\n",
        "        if not header:\n",
        (f"{UNIT}/broker/test_metadata_log.py::test_corrupt_snapshot_is_skipped",),
    ),
    Mutation(
        "leader epochs are there twice",
        "log/epochs.py",
        "    return entries[::2] if entries[::2] == entries[1::2] else entries\n",
        "    return entries[::2]\n",
        (f"{CORRUPT_BYTE}[leader epochs-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "a topic id has a checksum",
        "log/checkpoints.py",
        '    if marked and checksum.strip() != b"%08x" % crc32c(text):\n',
        "    if marked and not checksum:\n",
        (f"{CORRUPT_BYTE}[topic id-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "meta.properties has a checksum",
        "log/storage.py",
        '    if marked and checksum.strip() != b"%08x" % crc32c(text):\n',
        "    if marked and not checksum:\n",
        (f"{CORRUPT_BYTE}[meta.properties-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "log starts are there three times",
        "log/directory.py",
        "_REBUILDABLE = (RECOVERY_POINTS, HIGH_WATERMARKS)\n",
        "_REBUILDABLE = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS)\n",
        (f"{CORRUPT_BYTE}[log starts-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "a checkpoint takes no new topic for the old one of its name",
        "log/manager.py",
        "        self._rewrite_checkpoints_with(directory, topic_partition)\n",
        "",
        (f"{STORAGE}/test_recreated_topics.py::test_log_start_of_a_deleted_topic_hides_no_record_of_its_namesake",),
    ),
    Mutation(
        "what a killed process left is synced before it is served",
        "log/manager.py",
        "        self._flush_recovered()\n",
        "",
        (f"{STORAGE}/test_power_cut.py::test_batches_resent_after_a_kill_survive_a_power_cut",),
    ),
    Mutation(
        "compaction waits for what supersedes a record to be on disk",
        "log/cleaner.py",
        "segments[-1].base_offset, log.flushed_offset)\n",
        "segments[-1].base_offset)\n",
        (f"{STORAGE}/test_log_model.py::test_log_keeps_its_promises_under_random_operations",),
        (("OTTLA_LOG_MODEL", "150"),),
    ),
    Mutation(
        "who asks about a topic that is deleted takes no directory offline",
        "log/context.py",
        "        if not self.closed:\n            self.log_directory.fail(error)\n",
        "        self.log_directory.fail(error)\n",
        (f"{STORAGE}/test_recreated_topics.py::test_query_of_a_deleted_topic_leaves_the_directory_online",),
    ),
    Mutation(
        "two lines that were joined are detected",
        "log/checkpoints.py",
        "map(_ENTRY.match, ",
        "map(_ENTRY.fullmatch, ",
        (f"{CORRUPT_BYTE}[log starts-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "how far a log was cleaned is there three times",
        "log/directory.py",
        "_REBUILDABLE = (RECOVERY_POINTS, HIGH_WATERMARKS)\n",
        "_REBUILDABLE = (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS)\n",
        (f"{CORRUPT_BYTE}[cleaner offsets-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "the corrupt segment is repaired, not the previous empty one",
        "log/log.py",
        "        i = segments.index_of_read(offset)\n",
        "        i = segments.index_at(offset)\n",
        (f"{CORRUPT_BYTE}[cleaned segment of old-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "a corrupt magic byte is detected",
        "log/segment.py",
        "            right = right and data[position + MAGIC_POSITION] == MAGIC  # the CRC does not cover it either\n",
        "",
        (f"{CORRUPT_BYTE}[cleaned segment-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "a producer snapshot has a checksum",
        "log/producer_snapshot.py",
        "    if crc != crc32c(data[_CRC_START:]):\n",
        "    if not data:\n",
        (f"{CORRUPT_BYTE}[newest producer snapshot-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "an index that points to no batch is noticed",
        "log/segment.py",
        '                raise TornSegmentError(f"{self.path()} holds no whole batch at {position}")\n',
        "                return\n",
        (f"{STORAGE}/test_recovery.py::test_wrong_index_is_detected_by_a_read_and_rebuilt",),
    ),
    Mutation(
        "what was recovered is synced with the next flush",
        "log/durability.py",
        "            paths = [*small, *(segment.path() for segment in sealed if segment.evictable)]\n",
        "            paths = [*small]\n",
        (f"{STORAGE}/test_recovery.py::test_more_segments_than_open_files_are_recovered_and_synced_by_the_next_flush",),
    ),
    Mutation(
        "an index that points behind the end is noticed",
        "log/segment.py",
        "        if position and position >= self.size:\n",
        "        if position < 0:\n",
        (f"{STORAGE}/test_recovery.py::test_index_entry_outside_of_its_segment_costs_no_record",),
    ),
    Mutation(
        "a time index is believed if its batch says the same",
        "log/segment.py",
        "timestamp < 0 or self._agrees(timestamp, offset):\n",
        "timestamp < 0 or self.size > 0:\n",
        (f"{STORAGE}/test_timestamps.py::test_corrupt_index_entry_costs_no_record",),
    ),
    Mutation(
        "corruption affects one batch, and no later ones",
        "log/repair.py",
        "    if segment.size - position < HEADER_SIZE:\n        return None\n    found",
        "    if segment.size > 0:\n        return None\n    found",
        (f"{CORRUPT_BYTE}[segment-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "a repair does not write checksums for corrupt records",
        "log/repair.py",
        "    files.pwrite(fd, head, position)\n",
        "    from ottla.records.checksum import crc32c\n\n"
        '    head[17:21] = crc32c(bytes(head[21:]) + stretch[HEADER_SIZE:]).to_bytes(4, "big")\n'
        "    files.pwrite(fd, head, position)\n",
        (f"{CORRUPT_BYTE}[newest segment-killed]",),
        MANY_BYTES,
    ),
    Mutation(
        "offsets that are served follow each other",
        "log/segment.py",
        '                raise TornSegmentError(f"{self.path()} has offset {base} at byte {start + position}")\n',
        "                pass\n",
        (f"{CORRUPT_BYTE}[segment-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "bytes are served as they are on disk",
        "log/segment_list.py",
        "        data = segment.read(position, stop)\n",
        "        from ottla.records import iter_batches\n"
        "        from ottla.records.checksum import crc32c\n\n"
        "        whole = bytearray(segment.read(position, stop))\n"
        "        for at, header in iter_batches(whole):\n"
        "            right = crc32c(bytes(whole[at + 21 : at + header.size]))\n"
        '            whole[at + 17 : at + 21] = right.to_bytes(4, "big")\n'
        "        data = bytes(whole)\n",
        (f"{CHAOS}/test_corruption.py::test_corrupt_byte_is_never_served_as_a_record",),
    ),
    Mutation(
        "a torn tail is cut off",
        "log/recovery.py",
        "        cut = segment.size > recovery.good_bytes\n",
        "        cut = segment.size < recovery.good_bytes\n",
        (f"{STORAGE}/test_recovery.py::test_a_tail_torn_at_any_byte_is_cut_to_whole_batches",),
    ),
    Mutation(
        "the checksum of group records is checked",
        "broker/coordinator_loading.py",
        "            if not check_crc(data, position, header.size):\n",
        "            if not data:\n",
        (f"{CORRUPT_BYTE}[groups-stopped]",),
        MANY_BYTES,
    ),
    Mutation(
        "a tail whose checksum is wrong is cut off",
        "records/_survey.py",
        "        return crc32c(whole[at + _CRC_START : at + size]) == crc\n",
        "        return True\n",
        (f"{STORAGE}/test_recovery.py::test_a_flipped_bit_ends_the_log_before_its_batch",),
        FALLBACK,
    ),
    Mutation(
        "truncated data never reappears after recovery",
        "log/recovery.py",
        "            self.files.fsync(segment.fd)\n            segment.size",
        "            segment.size",
        (f"{STORAGE}/test_recovery.py::test_truncated_tail_does_not_come_back_after_the_next_power_cut",),
    ),
)

CRASHES = (
    Mutation(
        "after kill -9 the log is read beyond its recovery point",
        "log/recovery.py",
        "    def _end_of_log(self, recovered_to: int | None) -> int:\n",
        "    def _end_of_log(self, recovered_to: int | None) -> int:\n"
        "        if not self.opening.clean:\n"
        "            return max(self.opening.recovery_point, self.segments[-1].base_offset)\n",
        (
            f"{CHAOS}/test_kill9.py::test_acknowledged_records_survive_kill_9",
            f"{CHAOS}/test_kill_loop.py::test_acknowledged_records_survive_any_number_of_kills",
        ),
    ),
    Mutation(
        "and so are the producers in it",
        "log/segment_recovery.py",
        "                self.producers.record(header, None, header.base_offset, None)\n",
        "                pass\n",
        (f"{STORAGE}/test_recovery.py::test_leader_epochs_and_producers_are_rebuilt_from_the_batches",),
    ),
    Mutation(
        "a changed digit in leader-epoch-checkpoint is found",
        "log/epoch_check.py",
        "        if problem is None:\n",
        "        if True:\n",
        (f"{STORAGE}/test_epoch_check.py::test_every_changed_bit_is_found",),
    ),
    Mutation(
        "a storm of log lines takes a bounded part of the disk",
        "common/log_lines.py",
        "        if size > budget.left_bytes:\n",
        "        if False:\n",
        (f"{UNIT}/common/test_log_lines.py::test_storm_of_lines_is_bounded_and_counted",),
    ),
    Mutation(
        "a producer's last five batches are known after a start",
        "log/producer_snapshot.py",
        "        rows += [_row(e, batch, batch.timestamp, -1) for batch in e.batches[:-1]]\n",
        "",
        (f"{STORAGE}/test_producer_retries.py::test_five_batches_are_known_wherever_the_log_rolled",),
    ),
    Mutation(
        "rolled segments are all there after kill -9",
        "log/recovery.py",
        "                if cut or self._is_cut_short(i, end):\n",
        "                if end is not None:\n",
        (f"{RESTARTS}::test_kill_9_while_segments_roll",),
    ),
    Mutation(
        "what compaction leaves alone stays",
        "log/compaction.py",
        "            key is None or not keys.is_last(key, offset) or (horizon_passed and not has_value)\n",
        "            key is None or keys.is_last(key, offset) or (horizon_passed and not has_value)\n",
        (f"{RESTARTS}::test_kill_9_while_logs_are_compacted",),
    ),
    Mutation(
        "DeleteRecords takes whole segments below its offset only",
        "log/retention.py",
        "following is not None and following <= log_start_offset)\n",
        "following is not None and following <= log_end_offset)\n",
        (f"{RESTARTS}::test_kill_9_while_records_are_deleted",),
    ),
    Mutation(
        "topics are loaded from the log after the snapshot",
        "broker/quorum/replay.py",
        "                    if not header.is_control:\n",
        "                    if not header.is_control and header.base_offset < 20:\n",
        (f"{RESTARTS}::test_kill_9_while_topics_are_created_and_deleted",),
    ),
    Mutation(
        "a start that was cut short is begun again",
        "log/files.py",
        '        temporary = path + ".tmp"\n',
        "        temporary = path\n",
        (f"{STORAGE}/test_power_cut.py::test_start_interrupted_at_any_moment_is_repeated",),
    ),
    Mutation(
        "a late marker does not end the next transaction",
        "log/producer_state.py",
        "        if end.producer_epoch == entry.epoch and entry.transaction_start >= 0:\n",
        "        if end.producer_epoch < entry.epoch:\n",
        (f"{MARKERS}::test_late_marker_does_not_end_the_next_transaction_of_version_2",),
    ),
    Mutation(
        "a partly deleted batch of an open transaction counts after a crash",
        "log/recovery.py",
        "            self.producers.load_newest(self.segments[0].base_offset, self.now_ms)\n",
        "            self.producers.load_newest(self.log_start_offset, self.now_ms)\n",
        (f"{STORAGE}/test_log.py::{DELETED_BEGINNING}[2-False]",),
    ),
    Mutation(
        "the last stable offset is not below the log start",
        "log/log.py",
        "        return min(max(unstable, self.log_start_offset), self._high_watermark)\n",
        "        return min(unstable, self._high_watermark)\n",
        (f"{STORAGE}/test_log.py::{DELETED_BEGINNING}[4-None]",),
    ),
    Mutation(
        "a transaction completes after its topic was deleted",
        "broker/transaction_runtime.py",
        "{partition: ErrorCode.NONE if error is deleted else error for",
        "{partition: error for",
        (f"{TRANSACTIONS}::test_topic_that_is_deleted_does_not_hold_up_its_transactions",),
    ),
    Mutation(
        "the response to a marker waits until the marker is committed",
        "broker/transaction_markers.py",
        "                waiting.append((partition, done))\n",
        "                waiting.clear()\n",
        (f"{MARKERS}::test_response_waits_until_the_marker_is_on_disk",),
    ),
    Mutation(
        "offsets of a transaction are committed by its marker",
        "broker/coordinator_runtime.py",
        "        runner.shard.end_transaction(end.producer_id, commit=end.commit)\n",
        "",
        (f"{MARKERS}::test_marker_commits_offsets_of_the_transaction[True]",),
    ),
    Mutation(
        "offsets of an open transaction are not committed",
        "coordinators/group/shard.py",
        "event.base_offset + position, producer_id=producer_id, now=now)\n",
        "event.base_offset + position, now=now)\n",
        (f"{UNIT}/coordinators/test_transactional_offsets.py::test_offset_counts_when_its_transaction_commits",),
    ),
    Mutation(
        "the coordinator's answer about a partition is void after a marker",
        "broker/transaction_verification.py",
        "            if partition.log.producers.markers != self._markers[partition]:\n                continue\n",
        "",
        (f"{TRANSACTIONS}::test_answer_of_the_coordinator_is_void_after_a_marker",),
    ),
    Mutation(
        "a transactional batch is verified with the coordinator",
        "broker/transaction_verification.py",
        "            self.unsettled.add(partition)\n",
        "            pass\n",
        (
            f"{TRANSACTIONS}::test_partition_that_was_not_added_is_rejected",
            f"{TRANSACTIONS}::test_batch_that_arrives_after_its_transaction_begins_no_other[1]",
        ),
    ),
    Mutation(
        "batches of several producers do not count as those of one open transaction",
        "broker/transaction_verification.py",
        "        elif producer != (producer_id, epoch):\n            return False\n",
        "",
        (f"{TRANSACTIONS}::test_transactions_of_two_producers_in_one_request_are_rejected",),
    ),
    Mutation(
        "a transactional batch without an open transaction in its partition is verified",
        "broker/transaction_verification.py",
        "        if entry is not None and entry.epoch == epoch and entry.transaction_start >= 0:\n",
        "        if entry is not None and entry.epoch == epoch:\n",
        (f"{TRANSACTIONS}::test_batch_that_arrives_after_its_transaction_begins_no_other",),
    ),
    Mutation(
        "a transactional batch waits until the addition of its partition is committed",
        "broker/coordinator_runtime.py",
        "        return runner.shard if runner.committed_end >= runner.appended_end else None\n",
        "        return runner.shard\n",
        (f"{TRANSACTIONS}::test_batch_waits_until_its_partition_is_added_on_disk",),
    ),
    Mutation(
        "an open transaction is that of the producer's own epoch",
        "coordinators/transaction/shard.py",
        "            and (metadata.producer_id, metadata.producer_epoch) == producer\n",
        "",
        (f"{TRANSACTIONS}::test_partition_of_another_producer_is_rejected",),
    ),
    Mutation(
        "markers wait until the decision is committed",
        "broker/coordinator_runtime.py",
        "        if runner.committed_end >= runner.appended_end and not runner.waiting:\n",
        "        if runner:\n",
        (f"{TRANSACTIONS}::test_markers_wait_until_the_decision_is_on_disk[2]",),
    ),
    Mutation(
        "offsets of a committed transaction count",
        "coordinators/group/offset_store.py",
        "        if not commit:\n",
        "        if offsets:\n",
        (f"{TRANSACTIONAL_OFFSETS}::test_records_and_offsets_of_transactions_agree_while_the_broker_is_killed",),
    ),
    Mutation(
        "committed readers learn of aborted transactions",
        "log/producer_state.py",
        "        if marker.aborted and aborted is not None:\n",
        "        if not marker:\n",
        (f"{CHAOS}/test_transfers.py::test_sums_balance_for_committed_readers_while_the_broker_is_killed",),
    ),
    Mutation(
        "groups are loaded from their log",
        "broker/coordinator_loading.py",
        "            shard.replay(record.key, record.value, record.offset, producer_id=producer_id)\n",
        "            shard.replay(record.key, None, record.offset, producer_id=producer_id)\n",
        (f"{CHAOS}/test_kill9.py::test_committed_offsets_and_topics_survive_kill_9",),
    ),
    Mutation(
        "a partition of one replica proposes its first follower",
        "broker/partition.py",
        "        self._replication, self._propose = replication or (None, None)\n        self.isr_size",
        "        self._replication = replication.leader if replication else None\n        self.isr_size",
        (
            f"{UNIT}/broker/test_replicated_partition.py::test_followers_are_added_to_and_removed_from_a_partition_of_one_replica",
        ),
    ),
    Mutation(
        "a response waits for the flush that the topic's settings require",
        "broker/partition.py",
        "            if not self.log.needs_flush(now_ms) and not self.log.durability.is_ahead_of_disk:\n",
        "            if now_ms:\n",
        (
            f"{UNIT}/broker/test_flush_before_ack.py::test_power_failure_loses_no_acknowledged_record",
            f"{STORAGE}/test_power_cut.py::test_acknowledged_records_survive_a_power_cut_of_the_broker",
        ),
    ),
    Mutation(
        "metadata is synced before the response",
        "broker/metadata_log.py",
        "        if end_offset <= self.raft.high_watermark and not self._waiting:\n",
        "        if end_offset:\n",
        (f"{UNIT}/broker/test_metadata_log.py::test_acknowledged_operations_survive_a_power_cut",),
    ),
    Mutation(
        "files that are replaced are on disk before their name is",
        "log/files.py",
        "        self.write(temporary, data, sync=True)\n",
        "        self.write(temporary, data)\n",
        (f"{STORAGE}/test_power_cut.py::test_acknowledged_records_survive_a_power_cut_of_the_broker",),
        (("OTTLA_POWER_CUTS", "60"),),
    ),
    Mutation(
        "names of new files are synced with them",
        "log/durability.py",
        "        if sync_directory:\n",
        "        if not sync_directory:\n",
        (f"{STORAGE}/test_recovery.py::test_flushed_records_survive_any_crash_once_and_in_order",),
    ),
    Mutation(
        "names of new partitions are synced with them",
        "log/durability.py",
        "            files.fsync_directory(context.log_directory.path)  # the partition's directory may be new\n",
        "",
        (
            f"{STORAGE}/test_recovery.py::test_flushed_records_survive_any_crash_once_and_in_order",
            f"{STORAGE}/test_power_cut.py::test_acknowledged_records_survive_a_power_cut_of_the_broker",
        ),
    ),
    Mutation(
        "a stop says that it was clean",
        "log/manager.py",
        "            if directory.online and id(directory) not in dirty:\n",
        "            if directory.online and id(directory) in dirty:\n",
        (f"{RESTARTS}::test_sigterm_under_load_is_clean_and_the_next_start_recovers_nothing",),
    ),
    Mutation(
        "a directory is locked",
        "log/storage.py",
        "            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            fcntl.lockf(fd, fcntl.LOCK_UN)\n",
        (f"{CHAOS}/test_refused_starts.py::test_port_or_directory_in_use_is_an_error",),
    ),
)

DISKS = (
    Mutation(
        "what a worker that failed left is removed",
        "log/cleaner.py",
        "                self._leave_alone(log, outcome, now_ms)\n                self._discard(",
        "                self._leave_alone(log, outcome, now_ms)\n                str(",
        (f"{CLEANER}::test_failed_worker_costs_one_attempt",),
    ),
    Mutation(
        "a swap that fails takes the directory offline",
        "log/cleaner.py",
        "            return self._swap(log, outcome, running)\n        except OSError as error:\n"
        "            # The next start completes or undoes an interrupted swap, whatever the error was.\n"
        "            log.log_directory.take_offline(error)\n",
        "            return self._swap(log, outcome, running)\n        except OSError:\n",
        (f"{CLEANER}::test_failed_swap_is_completed_or_undone_by_the_next_start",),
    ),
    Mutation(
        "a worker that cannot be started is tried again later",
        "log/cleaner.py",
        "        except (OSError, KafkaError) as error:  # the worker",
        "        except KafkaError as error:  # the worker",
        (f"{CLEANER}::test_compaction_is_retried_when_the_worker_cannot_start",),
    ),
    Mutation(
        "a directory that cannot be read at a start is offline alone",
        "log/manager.py",
        "                    self._load_directory(directory, config_for, is_stray)\n                except OSError as",
        "                    self._load_directory(directory, config_for, is_stray)\n                except KeyError as",
        (f"{FAILING}::test_disk_unreadable_at_start_takes_only_its_partitions_offline",),
    ),
    Mutation(
        "unreadable metadata is not the end of the log",
        "log/segment_recovery.py",
        "            data = self.segment.files.pread(fd, min(chunk, segment.size - place), place)\n            try:\n",
        "            try:\n"
        "                data = self.segment.files.pread(fd, min(chunk, segment.size - place), place)\n"
        "            except OSError:\n"
        "                break\n"
        "            try:\n",
        (f"{FAILING}::test_unreadable_metadata_is_reported_and_not_replaced",),
    ),
    Mutation(
        "an error of the disk takes its directory offline",
        "log/context.py",
        "            self.log_directory.fail(error)\n        problem = ",
        "            str(error)\n        problem = ",
        (f"{FAILING}::test_failed_directory_takes_only_its_partitions_offline",),
    ),
    Mutation(
        "the same, on a disk that is full indeed",
        "log/directory.py",
        "            self.online = False\n",
        "            self.online = True\n",
        (f"{CHAOS}/test_full_disk.py::test_full_disk_stops_only_its_own_partitions",),
    ),
    Mutation(
        "half a batch on a full disk is cut off",
        "log/segment_list.py",
        "            self._cut_partial_write(segment)\n            raise\n",
        "            raise\n",
        (f"{STORAGE}/test_recovery.py::test_failed_write_takes_the_directory_offline_and_leaves_no_partial_batch",),
    ),
    Mutation(
        "a failed fsync fails all waiters",
        "broker/partition.py",
        "        except (KafkaError, OSError) as error:\n            self._fail_waiting(",
        "        except KeyError as error:\n            self._fail_waiting(",
        (f"{FLUSH}::test_failed_fsync_fails_waiting_requests_and_exposes_no_records",),
    ),
    Mutation(
        "the broker stops if the disk of its metadata fails",
        "broker/server.py",
        "        if directory.path == self.config.metadata_log_dir:\n",
        "        if directory.path == self.config:\n",
        (
            f"{FAILING}::test_failure_of_the_metadata_directory_stops_the_broker",
            f"{CHAOS}/test_full_disk.py::test_broker_whose_only_disk_is_full_stops_and_works_again_after_space_is_freed",
        ),
    ),
    Mutation(
        "a commit that cannot be written is rejected",
        "broker/coordinator_runtime.py",
        '        except KafkaError as error:\n            logger.warning("Failed to write to',
        '        except KeyError as error:\n            logger.warning("Failed to write to',
        (f"{FAILING}::test_failed_disk_with_group_offsets_refuses_commits",),
    ),
    Mutation(
        "a snapshot that does not fit on the disk is retried",
        "broker/metadata_snapshotting.py",
        '            except OSError as error:\n                logger.warning("Failed to write a metadata snapshot',
        '            except KeyError as error:\n                logger.warning("Failed to write a metadata snapshot',
        (f"{FAILING}::test_metadata_snapshot_that_does_not_fit_is_written_later",),
    ),
    Mutation(
        "a disk that cannot be read goes offline",
        "log/log.py",
        "            self._repair(offset, error)\n        except OSError as error:\n            self.context.fail(",
        "            self._repair(offset, error)\n        except OSError as error:\n            str(",
        (f"{FAILING}::test_unreadable_disk_takes_only_its_partitions_offline",),
    ),
    Mutation(
        "a node of a cluster does not found another one",
        "broker/node/directories.py",
        "    if cluster_id is None and not config.formats_itself:\n",
        "    if cluster_id is None and config is None:\n",
        ("tests/cluster/test_directories.py::test_node_of_a_cluster_does_not_found_another_one",),
    ),
    Mutation(
        "a broker of a cluster catches up before it judges which logs are strays",
        "broker/server.py",
        "        await completed(lifecycle.caught_up, self._stop)\n",
        "        del request\n",
        ("tests/cluster/test_directories.py::test_logs_that_the_metadata_on_disk_lacks_are_kept",),
    ),
    Mutation(
        "partitions of a lost directory are not recreated",
        "broker/node/directories.py",
        "    missing = sorted(set(known.directories) - present) if known is not None else []\n",
        "    missing = sorted(set(known.directories) - known.directories) if known is not None else []\n",
        (f"{FAILING}::test_lost_directory_is_used_again_when_it_returns",),
    ),
    Mutation(
        "checkpoints do not queue on a slow disk",
        "broker/maintenance.py",
        "            if not last.done:\n                return False\n",
        "",
        (f"{STORAGE}/test_slow_disk.py::test_checkpoints_slower_than_their_interval_delay_nothing",),
    ),
    Mutation(
        "a slow disk does not delay the metadata log",
        "broker/server.py",
        "                run_in_thread=self._metadata_threads.run,\n",
        "                run_in_thread=self._threads.run,\n",
        (f"{STORAGE}/test_slow_disk.py::test_metadata_does_not_wait_for_the_flushes_of_many_logs",),
    ),
    Mutation(
        "a callback that raises does not stop the metadata log",
        "broker/metadata_log.py",
        "            _notify(listener, old, image)\n",
        "            listener(old, image)\n",
        (f"{UNIT}/broker/test_metadata_log.py::test_listener_that_raises_does_not_stop_the_metadata_log",),
    ),
)

PEERS = f"{UNIT}/broker/test_peers.py"
BETWEEN_BROKERS = (
    Mutation(
        "a follower's fetch does not miss what its position lets a waiter append",
        "broker/fetching.py",
        "        if self._session.changes != seen:\n",
        "        if self._session.changes < seen:\n",
        (f"{UNIT}/broker/test_fetch.py::test_append_during_the_look_is_not_missed",),
    ),
    Mutation(
        "a partition that its leader does not know yet is not taken for deleted",
        "broker/peers/markers.py",
        "    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error\n",
        "    return error\n",
        (f"{PEERS}::test_partition_that_its_leader_does_not_know_yet_is_not_taken_for_deleted",),
    ),
    Mutation(
        "a request has one marker of each producer",
        "broker/peers/markers.py",
        "        return question.end.producer_id\n",
        "        return id(question)\n",
        (f"{PEERS}::test_markers_that_wait_for_a_broker_are_sent_in_one_request",),
    ),
    Mutation(
        "a repeated initialization does not reset share state at another broker",
        "broker/peers/share_states.py",
        "        if not isinstance(request, InitializeState) or not request.keeps_existing:\n",
        "        if request:\n",
        (f"{PEERS}::test_repeated_initialization_does_not_reset_state_at_another_broker",),
    ),
)

RUNTIME = f"{UNIT}/coordinators/test_group_runtime.py"
GROUPS = (
    Mutation(
        "a shard is unloaded when another node leads its partition",
        "broker/coordinator_runtime.py",
        "            if runner.partition.closed or topic.leader_epoch(runner.index) != runner.leader_epoch:\n",
        "            if runner.partition.closed:\n",
        (
            f"{RUNTIME}::test_lost_leadership_unloads_groups_and_their_timers",
            f"{RUNTIME}::test_shard_loads_again_in_a_later_leader_epoch",
        ),
    ),
    Mutation(
        "a new leader shows nothing that it loaded before it is committed",
        "broker/coordinator_runtime.py",
        "        self._appended(runner, runner.partition.log.log_end_offset)\n        shard",
        "        shard",
        (f"{RUNTIME}::test_replies_of_a_new_leader_wait_until_all_that_it_loaded_is_committed",),
    ),
    Mutation(
        "long names of groups are not kept",
        "coordinators/group/records.py",
        "if len(group_id) <= LONGEST_CACHED else",
        "if group_id else",
        (f"{UNIT}/coordinators/test_group_runtime.py::test_keys_of_long_group_ids_are_not_cached",),
    ),
    Mutation(
        "partitions of long group ids are not cached",
        "broker/internal_topic.py",
        "if len(key) <= LONGEST_CACHED else",
        "if key else",
        (f"{UNIT}/coordinators/test_group_runtime.py::test_keys_of_long_group_ids_are_not_cached",),
    ),
    Mutation(
        "an unhandled error in one group does not stop the timers of others",
        "broker/coordinator_runtime.py",
        "        finally:  # an unhandled error in one shard must not stop the timers of the others\n"
        "            self._arm_again(now)\n",
        "        except KeyError:\n            raise\n        self._arm_again(now)\n",
        (
            f"{UNIT}/coordinators/test_group_runtime.py::test_unhandled_error_in_one_group_does_not_stop_timers_of_others",
        ),
    ),
    Mutation(
        "a protocol that a member names twice counts once",
        "coordinators/group/join.py",
        "    protocols: Protocols = tuple(unique.items())\n",
        "    protocols: Protocols = tuple((each.name, each.metadata) for each in request.protocols)\n",
        (f"{UNIT}/coordinators/test_rebalance.py::test_duplicate_protocol_counts_once",),
    ),
    Mutation(
        "no thread of a client runs when Python ends",
        "clients/driver.py",
        "@atexit.register\ndef _stop_all",
        "def _stop_all",
        ("tests/clients/test_ottla_dropped.py::test_program_without_close_ends_its_threads_first",),
    ),
    Mutation(
        "a static member that returns leaves no partition without an owner",
        "coordinators/group/join.py",
        "is_same_vote and not _has_partition_without_owner(core, group, member, joining.protocols)",
        "is_same_vote",
        (f"{UNIT}/coordinators/test_static_members.py::test_returning_member_causes_a_rebalance_if_a_topic_has_grown",),
    ),
)

TIME = (
    Mutation(
        "retention is skipped once after the clock was set",
        "broker/maintenance.py",
        "        if abs(jump_s) < _JUMP_S:\n",
        "        if jump_s is not None:\n",
        (f"{CLOCK}::test_retention_and_flushes_go_on",),
    ),
    Mutation(
        "flushes go on after the clock was set back",
        "log/durability.py",
        "not 0 <= now_ms - self._flushed_ms < self._flush_ms",
        "now_ms - self._flushed_ms >= self._flush_ms",
        (f"{CLOCK}::test_retention_and_flushes_go_on",),
    ),
    Mutation(
        "expiry of offsets waits one turn after the clock was set",
        "coordinators/group/shard.py",
        "        return self._expiry_clock.was_set(now)\n",
        "        return False\n",
        (f"{UNIT}/coordinators/test_offsets.py::test_offsets_do_not_expire_after_a_jump_of_the_wall_clock",),
    ),
    Mutation(
        "sessions of members use the monotonic clock",
        "broker/coordinator_runtime.py",
        "        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())\n",
        "        return Moment(self._clock.wall_ms(), self._clock.wall_ms())\n",
        (
            f"{CLOCK}::test_clock_jumps_lose_no_member_and_block_no_request[a month ahead]",
            f"{CLOCK}::test_disconnected_member_is_removed_after_its_session_timeout[a month ahead]",
            f"{CLOCK}::test_disconnected_member_is_removed_after_its_session_timeout[a month back]",
        ),
    ),
    Mutation(
        "deleted files go although the clock was set back",
        "log/segment_list.py",
        "        due = [path for moment, path in self.deletions if not now_ms < moment <= latest]\n",
        "        due = [path for moment, path in self.deletions if moment <= now_ms <= latest]\n",
        (f"{CLOCK}::test_housekeeping_goes_on_after_the_clock_was_set_back",),
    ),
    Mutation(
        "deleted topics go although the clock was set back",
        "log/deletions.py",
        "        folders = [(where, path) for moment, where, path in self._due if not now_ms < moment <= latest]\n",
        "        folders = [(where, path) for moment, where, path in self._due if moment <= now_ms <= latest]\n",
        (f"{CLOCK}::test_housekeeping_goes_on_after_the_clock_was_set_back",),
    ),
    Mutation(
        "metadata snapshots continue after the clock was set back",
        "broker/metadata_snapshotting.py",
        "not 0 <= self._clock.wall_ms() - self._began_ms < interval_ms",
        "self._clock.wall_ms() - self._began_ms >= interval_ms",
        (f"{CLOCK}::test_housekeeping_goes_on_after_the_clock_was_set_back",),
    ),
    Mutation(
        "logs are cleaned although the clock was set back",
        "log/cleaner.py",
        "        if 0 < self._next_look_ms - now_ms <= self.backoff_ms:  # beyond",
        "        if 0 < self._next_look_ms - now_ms:  # beyond",
        (f"{STORAGE}/test_cleaner.py::test_a_clock_that_was_set_back_does_not_put_off_cleaning",),
    ),
    Mutation(
        "a log that failed is tried again although the clock was set back",
        "log/cleaner.py",
        "                or 0 < self._failed.get(log.directory, now_ms) - now_ms <= _RETRY_MS  # beyond",
        "                or 0 < self._failed.get(log.directory, now_ms) - now_ms  # beyond",
        (f"{STORAGE}/test_cleaner.py::test_a_clock_that_was_set_back_does_not_put_off_cleaning",),
    ),
)

LONG = (
    Mutation(
        "overload: large requests wait in the clients' sockets",
        "network/receive_memory.py",
        "        return self.used_bytes + more_bytes <= self.max_used_bytes\n",
        "        return True\n",
        (f"{OVERLOAD}::test_too_many_large_requests_slow_down_and_release_their_memory",),
    ),
    Mutation(
        "overload: a connection with unhandled frames is not read from",
        "network/connection.py",
        "            self._pause_reading()\n            asyncio.get_running_loop().call_soon(self._go_on)\n",
        "            asyncio.get_running_loop().call_soon(self._go_on)\n",
        (f"{OVERLOAD}::test_twice_the_capacity_slows_clients_down_and_loses_nothing",),
    ),
    Mutation(
        "overload: all connections continue in the next iteration",
        "network/connection.py",
        "            self._pause_reading()\n            asyncio.get_running_loop().call_soon(self._go_on)\n",
        "            self._pause_reading()\n"
        "            asyncio.get_running_loop().call_later(self.remote_port % 16 / 10, self._go_on)\n",
        (f"{OVERLOAD}::test_twice_the_capacity_slows_clients_down_and_loses_nothing",),
    ),
    Mutation(
        "the number of fetch sessions is limited",
        "broker/fetch_session.py",
        "        if len(self._sessions) >= self._slots:\n",
        "        if len(self._sessions) < 0:\n",
        (f"{CHAOS}/test_long_run.py::test_memory_descriptors_tasks_and_threads_stay_flat",),
    ),
    Mutation(
        "deleted topics leave the disk",
        "log/deletions.py",
        "        if files or folders:\n",
        "        self._due += [(0, home, path) for home, path in folders]\n        if files:\n",
        (f"{CHAOS}/test_long_run.py::test_memory_descriptors_tasks_and_threads_stay_flat",),
    ),
    Mutation(
        "descriptors of deleted logs are closed",
        "log/segment_list.py",
        "self.active.to_create = False\n            for segment in self._segments:\n",
        "self.active.to_create = False\n            for segment in ():\n",
        (f"{CHAOS}/test_long_run.py::test_memory_descriptors_tasks_and_threads_stay_flat",),
    ),
)

SHORT, MISSING = f"{STORAGE}/test_shortage.py", f"{STORAGE}/test_missing_files.py"
REPLICA = f"{UNIT}/broker/quorum"
METADATA_LOG = f"{UNIT}/broker/test_metadata_log.py"
SHORTAGES = (
    Mutation(
        "a shortage of descriptors or memory is not a broken disk",
        "log/directory.py",
        "        if is_shortage(error):\n",
        "        if not error.args:\n",
        (
            f"{SHORT}::test_log_goes_on_after_a_long_shortage",
            f"{SHORT}::test_append_that_rolls_loses_and_doubles_nothing_wherever_it_fails[EMFILE]",
            f"{SHORT}::test_checkpoints_are_written_later",
            f"{LIMITS}::test_shortage_caused_by_other_processes_is_survived",
        ),
    ),
    Mutation(
        "a failed fsync is not a shortage",
        "common/shortage.py",
        " and not isinstance(error, SyncError)",
        "",
        (f"{SHORT}::test_failed_fsync_is_not_treated_as_a_shortage",),
    ),
    Mutation(
        "connections leave descriptors for the logs",
        "network/server.py",
        "        if taken < allowed:\n",
        "        if taken >= 0:\n",
        (
            f"{SERVER}::test_connections_leave_the_reserved_descriptors_free",
            f"{LIMITS}::test_more_connections_than_descriptors_lose_no_record_and_no_directory",
        ),
    ),
    Mutation(
        "accepting pauses while there are no descriptors",
        "network/acceptor.py",
        "                self._pause()\n                self._resuming",
        "                self._resuming",
        (f"{SERVER}::test_accepting_pauses_while_the_system_has_no_descriptors",),
    ),
    Mutation(
        "cached files are closed before an operation fails",
        "log/files.py",
        " or release is None or not release():\n",
        " or str(release):\n",
        (f"{SHORT}::test_cached_descriptors_are_closed_before_anything_fails",),
    ),
    Mutation(
        "only the thread that reads closes cached files",
        "log/open_files.py",
        "        return threading.get_ident() == self._thread and self._close_one()\n",
        "        return self._close_one()\n",
        (f"{SHORT}::test_only_the_thread_that_reads_closes_cached_descriptors",),
    ),
    Mutation(
        "a roll that fails leaves no empty segment",
        "log/segment.py",
        "            segment.close_file()\n            files.unlink(segment.path())\n            raise\n",
        "            raise\n",
        (
            f"{SHORT}::test_partition_is_created_later_wherever_it_fails[EMFILE]",
            f"{SHORT}::test_log_goes_on_in_its_segment_after_a_roll_that_failed[4]",
        ),
    ),
    Mutation(
        "a segment is written out before the next one begins",
        "log/segment_list.py",
        "        old.write_out()\n"
        "        new = Segment.create(context.files, context.path, offset, context.open_files, now_ms)\n",
        "        new = Segment.create(context.files, context.path, offset, context.open_files, now_ms)\n"
        "        old.write_out()\n",
        (f"{SHORT}::test_log_goes_on_in_its_segment_after_a_roll_that_failed[4]",),
    ),
    Mutation(
        "a flush that found no descriptors is done in full by the next one",
        "log/durability.py",
        "            unsynced.directory_changed = unsynced.directory_changed or sync_directory\n",
        "",
        (f"{STORAGE}/test_recovery.py::test_flush_without_descriptors_promises_nothing_and_is_retried",),
    ),
    Mutation(
        "a log that rolls faster than its disk syncs uses a bounded number of descriptors",
        "broker/partition.py",
        " and not self.log.durability.is_ahead_of_disk:\n",
        ":\n",
        (f"{FLUSH}::test_log_that_rolls_faster_than_its_disk_syncs_waits_before_descriptors_run_out",),
    ),
    Mutation(
        "the first record of a log finds its topic id on disk",
        "log/segment.py",
        "        if self.topic_id != ZERO_UUID:\n            write_topic_id",
        "        if self.size:\n            write_topic_id",
        (f"{PLANNED}::test_first_append_creates_the_files_with_the_topic_id",),
    ),
    Mutation(
        "an append that comes after the deletion of a topic creates no files",
        "log/segment_list.py",
        "            self.active.to_create = False\n",
        "",
        (
            f"{PLANNED}::test_append_to_a_deleted_log_creates_no_files",
            f"{PLANNED}::test_files_of_a_deleted_log_are_not_created",
        ),
    ),
    Mutation(
        "a log whose files were closed with its topic does not create them again, over those of a new topic",
        "log/segment.py",
        "        self.allocated = ALLOCATE_FROM\n        self.to_create = False\n",
        "        self.allocated = ALLOCATE_FROM\n",
        (f"{PLANNED}::test_files_of_a_new_topic_are_not_created_again",),
    ),
    Mutation(
        "the files of a new log are synced with its first records",
        "log/log.py",
        "        self.durability.sync_later(self.segments.active.adopt(topic_id))\n",
        "        self.segments.active.adopt(topic_id)\n",
        (f"{PLANNED}::test_flush_after_the_first_append_syncs_everything_that_it_created",),
    ),
    Mutation(
        "a new log waits for the checkpoints that name an old one",
        "log/manager.py",
        "        if any(topic_partition in directory.named.get(each, ()) for each in _TRUSTED):\n",
        "        if not directory.online:\n",
        (f"{SHORT}::test_new_partition_is_never_opened_beside_a_checkpoint_of_its_namesake[2]",),
    ),
    Mutation(
        "checkpoints that could not be written are written later",
        "log/manager.py",
        "            for name in tuple(directory.overdue):\n",
        "            for name in ():\n",
        (f"{SHORT}::test_checkpoints_are_written_later",),
    ),
    Mutation(
        "a start that cannot open its logs is refused",
        "log/storage.py",
        "    if is_shortage(error):\n        raise StorageError(\n",
        "    if not error.args:\n        raise StorageError(\n",
        (
            f"{SHORT}::test_start_without_descriptors_is_refused_and_the_next_start_loses_nothing",
            f"{LIMITS}::test_start_that_cannot_open_its_logs_is_an_error_and_changes_nothing",
        ),
    ),
    Mutation(
        "a request gives a partition its newest role first",
        "broker/partitions.py",
        "        if self._unchanged:\n            self._change_now(topic, index)\n",
        "",
        (f"{UNIT}/broker/test_role_changes.py::test_requested_partition_takes_its_newest_role_at_once",),
    ),
    Mutation(
        "partitions that could not be opened for lack of descriptors are opened later",
        "broker/partitions.py",
        "                self._postponed.add(name, (index,))\n",
        "                pass\n",
        (f"{LIMITS}::test_partitions_without_descriptors_are_served_when_descriptors_are_free",),
    ),
    Mutation(
        "new partitions leave descriptors to connections",
        "log/manager.py",
        "        if not self.has_descriptor():\n",
        "        if home is None:\n",
        (f"{LIMITS}::test_partitions_without_descriptors_are_served_when_descriptors_are_free",),
    ),
    Mutation(
        "a leader that lost its leadership fails its waiting operations",
        "broker/metadata_log.py",
        "        self._fail_waiting(self._not_controller())\n",
        "        pass\n",
        (f"{REPLICA}/test_quorum.py::test_uncommitted_operation_fails_and_its_records_are_truncated",),
    ),
    Mutation(
        "a leader that lost its leadership drops its uncommitted metadata",
        "broker/metadata_log.py",
        "        self._controller.load(self.image)\n",
        "",
        (f"{REPLICA}/test_quorum.py::test_uncommitted_operation_fails_and_its_records_are_truncated",),
    ),
    Mutation(
        "a truncation lowers the offset that the log must reach at the next start",
        "broker/quorum/replica.py",
        "        lower_synced(self.log, offset)\n",
        "",
        (f"{REPLICA}/test_quorum.py::test_uncommitted_operation_fails_and_its_records_are_truncated",),
    ),
    Mutation(
        "a voter does not forget its vote",
        "broker/metadata_opening.py",
        "        if not is_only_voter:\n",
        "        if not path:\n",
        (f"{REPLICA}/test_quorum.py::test_unreadable_vote_of_a_voter_is_an_error",),
    ),
    Mutation(
        "a replica publishes committed metadata only",
        "broker/metadata_log.py",
        "            self._publish(self._replay.advance(high_watermark))\n",
        "            self._publish(self._replay.advance(self.log.log_end_offset))\n",
        (f"{REPLICA}/test_commits.py::test_records_that_are_not_committed_are_not_published",),
    ),
    Mutation(
        "a follower rejects a batch of a future epoch",
        "broker/quorum/fetched.py",
        "<= epoch:\n",
        "<= epoch + 9:\n",
        (f"{REPLICA}/test_fetched.py::test_other_batches_are_rejected",),
    ),
    Mutation(
        "a follower rejects a corrupt batch of its leader",
        "broker/quorum/fetched.py",
        "        if not check_crc(records, position, header.size):\n",
        "        if header.size < 0:\n",
        (f"{REPLICA}/test_fetched.py::test_other_batches_are_rejected",),
    ),
    Mutation(
        "a closed connection of the leader begins an election",
        "broker/quorum/sender.py",
        "self._post(Disconnected(node_id), None)",
        "None",
        (f"{REPLICA}/test_quorum.py::test_killed_leader_is_replaced_when_its_connections_close",),
    ),
    Mutation(
        "a metadata flush that failed for lack of descriptors is retried",
        "broker/quorum/flusher.py",
        'metadata log: %s", error)\n        self._is_due = True\n',
        'metadata log: %s", error)\n',
        (f"{METADATA_LOG}::test_flush_without_a_descriptor_is_retried_by_the_next_tick",),
    ),
    Mutation(
        "an incomplete metadata transaction is aborted",
        "broker/metadata_log.py",
        '        if self._in_transaction:\n            self._abort_transaction("A shortage',
        '        if self._closed:\n            self._abort_transaction("A shortage',
        (f"{METADATA_LOG}::test_metadata_transaction_that_a_shortage_cuts_short_is_aborted[7]",),
    ),
    Mutation(
        "an index that vanished is rebuilt",
        "log/index.py",
        '            raise CorruptIndexError(f"{self.path} is missing") from error\n',
        "            raise\n",
        (
            f"{MISSING}::test_deleted_index_takes_no_directory_offline",
            f"{MISSING}::test_file_that_vanishes_while_the_broker_runs_is_rebuilt[*.index]",
        ),
    ),
    Mutation(
        "an index that vanishes while it grows is whole in the end",
        "log/index.py",
        "            if files.length(fd) < self._written * self.entry.size:\n",
        "            if files.length(fd) < 0:\n",
        (f"{MISSING}::test_index_deleted_during_appends_is_complete_when_its_segment_is_sealed",),
    ),
    Mutation(
        "an index of aborted transactions that vanished is written again",
        "log/segment_list.py",
        "            segment.txn_index.restore()\n",
        "            pass\n",
        (f"{MISSING}::test_file_that_vanishes_while_the_broker_runs_is_rebuilt[*.txnindex]",),
    ),
    Mutation(
        "leader epochs whose file vanished are found in the batches",
        "log/epoch_check.py",
        "    if not epochs.is_corrupt:\n",
        "    if not epochs.entries:\n        return\n    if not epochs.is_corrupt:\n",
        (f"{MISSING}::test_file_that_vanishes_between_two_runs_is_rebuilt[leader-epoch-checkpoint-stopped]",),
    ),
)

SETTINGS = (
    Mutation(
        "a long number in a setting costs its length, not the square of it",
        "config/values.py",
        r'    r"[+-]?(Infinity|((?:[0-9]+(?:\.[0-9]*)?|',
        r'    r"[+-]?(Infinity|((?:[0-9]+\.?[0-9]*|',
        (f"{UNIT}/config/test_setting_values.py::test_long_values_are_checked_in_linear_time",),
    ),
    Mutation(
        "an invalid load factor does not stop compaction",
        "log/cleaner.py",
        "        share = load_factor if 0 < load_factor <= 1 else DEFAULT_LOAD_FACTOR\n",
        "        share = load_factor\n",
        (f"{STORAGE}/test_cleaner.py::test_invalid_load_factor_means_the_default",),
    ),
    Mutation(
        "a changed broker setting is checked together with its other settings",
        "broker/config_rules.py",
        "        check_broker_together(before, after)\n",
        "",
        (f"{UNIT}/broker/test_altering_requests.py::test_broker_setting_is_checked_together_with_its_other_settings",),
    ),
)

NEWER = f"{UNIT}/broker/test_metadata_of_newer_software.py"
UNSERVED = f"{UNIT}/coordinators/test_unserved_groups.py"

STOCK = (
    Mutation(
        "levels that stock Kafka finalized do not bind this broker",
        "controller/brokers.py",
        "        level = served_level(name, finalized)\n",
        "        level = finalized\n",
        (f"{NEWER}::test_levels_of_stock_kafka_survive_starts_and_snapshots",),
    ),
    Mutation(
        "clients do not see a level that is not served",
        "broker/handlers/api_versions.py",
        "{name: served_level(name, level) for name, level in",
        "{name: level for name, level in",
        (f"{UNIT}/broker/test_dispatch.py::test_api_versions_advertises_no_level_that_is_not_served",),
    ),
    Mutation(
        "a snapshot with a record of newer software is not replaced by an older snapshot",
        "broker/metadata_snapshots.py",
        "        if isinstance(error.__cause__, UnknownRecordError):\n            raise\n",
        "",
        (f"{NEWER}::test_unknown_record_in_a_snapshot_is_not_replaced_by_an_older_snapshot",),
    ),
    Mutation(
        "Kafka reads the leader change record",
        "raft/control.py",
        "LEADER_CHANGE_VERSION = 0\n",
        "LEADER_CHANGE_VERSION = 1\n",
        (
            f"{NEWER}::test_leader_change_of_a_directory_with_kraft_version_1_is_written_as_kafka_reads_it",
            "tests/interop/test_stock_round_trip.py::test_stock_kafka_finds_everything_as_it_was",
        ),
    ),
    Mutation(
        "a record of newer software is not skipped",
        "broker/quorum/replay.py",
        "raise snapshots.unknown_record(where, self._delta.metadata_version, error) from error\n",
        "continue\n",
        (f"{NEWER}::test_unknown_record_in_the_log_is_reported_with_its_offset_and_what_to_do",),
    ),
    Mutation(
        "offsets of a group that is not served do not expire",
        "coordinators/group/unserved.py",
        "        core.groups.pop(group_id, None)\n",
        "        pass\n",
        (f"{UNSERVED}::test_unsupported_group_and_its_offsets_are_retained",),
    ),
    Mutation(
        "offsets of a group that is not served do not make a simple group",
        "coordinators/group/core.py",
        "(self.groups, self.consumer_groups, self.share_groups, self.unserved)",
        "(self.groups, self.consumer_groups, self.share_groups)",
        (f"{UNSERVED}::test_offsets_loaded_before_or_after_the_group_belong_to_it",),
    ),
    Mutation(
        "groups that are not served are listed by their type",
        "coordinators/group/admin.py",
        "TYPES = frozenset((GROUP_TYPE, consumer_admin.GROUP_TYPE, share_admin.GROUP_TYPE, *unserved.KINDS))\n",
        "TYPES = frozenset((GROUP_TYPE, consumer_admin.GROUP_TYPE))\n",
        (f"{UNIT}/coordinators/test_group_handlers.py::test_groups_of_every_kind_and_state_are_found_by_it",),
    ),
    Mutation(
        "Kafka can replay the tombstones of a group",
        "coordinators/group/unserved.py",
        "key=_type, reverse=True)",
        "key=_type)",
        (f"{UNSERVED}::test_tombstones_are_in_the_order_that_kafka_can_replay",),
    ),
)

MODERN = f"{UNIT}/coordinators/test_consumer_groups.py"
MIGRATION = f"{UNIT}/coordinators/test_group_migration.py"
CONSUMER_GROUPS = (
    Mutation(
        "a partition is given to a member only when no other member owns it",
        "coordinators/group/consumer/reconciliation.py",
        "if partition not in owners or partition in revoking]",
        "]",
        (f"{MODERN}::test_partition_moves_only_after_its_owner_gave_it_up",),
    ),
    Mutation(
        "a member stays in its epoch until it gave up its partitions",
        "coordinators/group/consumer/reconciliation.py",
        "    if revoking and _owns_any(goal, revoking):\n",
        "    if False:\n",
        (f"{MODERN}::test_partition_moves_only_after_its_owner_gave_it_up",),
    ),
    Mutation(
        "a member that reports nothing still owns its partitions",
        "coordinators/group/consumer/reconciliation.py",
        "    if goal.owned is None:\n        return True\n",
        "    if goal.owned is None:\n        return False\n",
        (f"{MODERN}::test_member_that_reports_nothing_keeps_its_partitions",),
    ),
    Mutation(
        "a member that keeps partitions too long is removed",
        "coordinators/group/consumer/change.py",
        "            self.core.timers.set(key, self.now.monotonic_ms + member.rebalance_timeout_ms)\n",
        "            pass\n",
        (f"{MODERN}::test_member_that_keeps_partitions_too_long_is_removed",),
    ),
    Mutation(
        "members with another epoch are fenced",
        "coordinators/group/consumer/heartbeat.py",
        "        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)\n",
        "        pass\n",
        (f"{MODERN}::test_wrong_epochs_are_fenced_and_the_previous_one_of_a_lost_response_is_not",),
    ),
    Mutation(
        "a static member that returns under the same id has a session",
        "coordinators/group/consumer/change.py",
        "        if after.member_id != before.member_id:\n",
        "        if True:\n",
        (f"{MODERN}::test_static_member_that_returns_under_the_same_id_still_times_out",),
    ),
    Mutation(
        "the session of a member ends even if its removal could not be written",
        "coordinators/group/consumer/fencing.py",
        "    core.timers.set((kind, group.group_id, member_id), now.monotonic_ms + max(retry_ms, 1))\n",
        "",
        (f"{MODERN}::test_failed_append_changes_nothing_and_the_session_still_ends",),
    ),
    Mutation(
        "an upgraded group knows the partitions that its cooperative members have not revoked yet",
        "coordinators/group/consumer/migration.py",
        "        revoking = _take(core.topics, subscription.owned_partitions, generation, taken)\n",
        "        revoking = _take(core.topics, (), generation, taken)\n",
        (f"{MIGRATION}::test_partition_that_a_cooperative_member_has_not_revoked_yet_keeps_its_owner",),
    ),
    Mutation(
        "a group that a static member converts rebalances if its members have not reached their target",
        "coordinators/group/consumer/migration.py",
        "    must_rebalance = epoch > target_epoch or not are_placed\n",
        "    must_rebalance = epoch > target_epoch\n",
        (f"{MIGRATION}::test_members_that_have_not_reached_their_target_rebalance_after_the_downgrade",),
    ),
    Mutation(
        "a coordinator that loads a group whose downgrade is not complete starts the rebalance again",
        "coordinators/group/group.py",
        "            group.rebalance_is_due = value.leader is None\n",
        "            group.rebalance_is_due = False\n",
        (f"{MIGRATION}::test_coordinator_that_restarts_during_the_rebalance_of_a_downgrade_starts_it_again",),
    ),
    Mutation(
        "an upgraded group assigns the partitions that its classic leader never assigned",
        "coordinators/group/consumer/migration.py",
        "    is_complete = _has_owners(core.topics, group)\n",
        "    is_complete = True\n",
        (f"{MIGRATION}::test_partitions_that_the_classic_leader_never_assigned_get_an_owner_after_the_upgrade",),
    ),
    Mutation(
        "a downgraded group knows the partitions that its members own, not those that they shall own",
        "coordinators/group/consumer/migration.py",
        "            owned[member.member_id] = _all_owned(member)\n",
        "            owned[member.member_id] = group.target_of(member)\n",
        (f"{MIGRATION}::test_partitions_that_a_member_has_not_given_up_at_a_downgrade_keep_their_owner",),
    ),
    Mutation(
        "a member whose protocol changed is not removed by a timer of the former one",
        "coordinators/group/consumer/fencing.py",
        "    if kind in _KINDS_OF_OTHER_PROTOCOL[member.classic is not None]:\n",
        "    if False:\n",
        (
            f"{MIGRATION}::test_classic_member_that_moved_under_its_id_need_not_synchronize",
            f"{MIGRATION}::test_classic_member_that_moved_under_its_id_need_not_join",
            f"{MIGRATION}::test_consumer_member_that_moved_under_its_id_need_not_give_up_partitions_in_time",
        ),
    ),
    Mutation(
        "a commit of a member with an epoch of the past is rejected",
        "coordinators/group/membership.py",
        "        (got_at := member.assignment_epoch(*partition)) is not None and got_at <= committer.epoch\n",
        "        True\n",
        (f"{MODERN}::test_commits_are_accepted_from_the_epoch_at_which_the_partition_was_assigned",),
    ),
)

SHARE = f"{UNIT}/clients/test_share_core.py"
HEARTBEATS = f"{UNIT}/clients/test_heartbeat_membership.py"

CROSSINGS = f"{UNIT}/clients/test_consumer_crossings.py"
CONSUMER = (
    Mutation(
        "a removed member does not commit the offsets of its transaction as a program outside of the group",
        "clients/consumer/core.py",
        "        if member.generation != NO_GENERATION or not self.subscription.is_group_managed:\n",
        "        if True:\n",
        (
            f"{CROSSINGS}::test_removed_member_commits_offsets_of_its_transaction_as_the_member_that_it_was",
            f"{CROSSINGS}::test_fenced_member_of_a_group_of_the_new_protocol_commits_with_its_last_epoch",
        ),
    ),
    Mutation(
        "a member acknowledges a revocation only after a poll has revoked the partitions",
        "clients/consumer/heartbeat_membership.py",
        "        fields = Sent(self._subscription, frozenset(self._owned))\n",
        "        fields = Sent(self._subscription, frozenset(self._owned) & self._target)\n",
        (f"{HEARTBEATS}::test_partition_is_revoked_by_a_poll_before_the_coordinator_hears_of_it",),
    ),
    Mutation(
        "a removed member drops its partitions before it joins again",
        "clients/consumer/heartbeat_membership.py",
        "        if self.state in _DROPS and self._owned:\n",
        "        if self.state is MemberState.FATAL and self._owned:\n",
        (
            f"{HEARTBEATS}::test_removed_member_loses_its_partitions_then_joins_with_epoch_zero",
            f"{HEARTBEATS}::test_each_event_in_each_state_keeps_the_invariants",
        ),
    ),
    Mutation(
        "a removed member does not commit",
        "clients/consumer/heartbeat_membership.py",
        "        return self._epoch if self.state in JOINED and self._epoch > JOIN_EPOCH else NO_GENERATION\n",
        "        return self._epoch\n",
        (
            f"{HEARTBEATS}::test_removed_member_loses_its_partitions_then_joins_with_epoch_zero",
            f"{HEARTBEATS}::test_member_leaves_after_max_poll_interval_and_rejoins_with_the_next_poll",
        ),
    ),
    Mutation(
        "partitions assigned while the member was removed are reported as lost",
        "clients/consumer/heartbeat_membership.py",
        "            self._owned.update(self._adopting)\n",
        "            self._owned.update(self._adopting if self.state is MemberState.RECONCILING else {})\n",
        (f"{HEARTBEATS}::test_partitions_assigned_while_the_member_was_removed_are_reported_as_lost",),
    ),
    Mutation(
        "a recreated topic is revoked and assigned again",
        "clients/consumer/heartbeat_membership.py",
        "        revoked = [tp for key, tp in self._owned.items() if key not in self._target]\n",
        "        revoked = [tp for key, tp in self._owned.items() if key not in self._target and not self._resolved]\n",
        (f"{HEARTBEATS}::test_recreated_topic_is_revoked_and_assigned",),
    ),
    Mutation(
        "a member joins again after the coordinator has processed its leave",
        "clients/consumer/heartbeat_membership.py",
        "        return self._leave is None and not self._subscription.is_empty\n",
        "        return not self._subscription.is_empty\n",
        (f"{HEARTBEATS}::test_stale_member_joins_after_its_leave_was_processed",),
    ),
    Mutation(
        "a commit with an earlier epoch of a member is retried",
        "clients/consumer/commits.py",
        "        elif code == ErrorCode.STALE_MEMBER_EPOCH:\n            error.retriable = True",
        "        elif code == ErrorCode.NONE:\n            error.retriable = True",
        (f"{HEARTBEATS}::test_commit_with_an_earlier_epoch_is_retried_with_the_current_one",),
    ),
    Mutation(
        "a removed member does not take the offsets of its successor",
        "clients/consumer/commits.py",
        "            group.member_id, group.member_epoch = member.member_id, member.generation\n",
        "            group.member_id = None\n",
        (f"{HEARTBEATS}::test_committed_offsets_are_looked_up_as_a_member",),
    ),
    Mutation(
        "a poll of a share consumer accepts only records that an earlier poll returned",
        "clients/share/core.py",
        "            self._held.setdefault(record.topic_partition, {})[record.offset] = held\n            taken",
        "            self._held.setdefault(record.topic_partition, {})[record.offset] = held\n"
        "            self._held[record.topic_partition] |= {r.offset: h for r, h in self._ready}\n            taken",
        (f"{SHARE}::test_next_poll_accepts_what_was_returned_and_nothing_else",),
    ),
    Mutation(
        "a share consumer releases corrupt records, so that they are delivered again",
        "clients/share/core.py",
        "                    missing[offset] = AcknowledgeType.RELEASE if is_corrupt else GAP\n",
        "                    missing[offset] = GAP if is_corrupt else GAP\n",
        (f"{SHARE}::test_corrupt_records_are_released_not_skipped",),
    ),
    Mutation(
        "acknowledgements of a lost share session fail instead of reaching the next session",
        "clients/share/core.py",
        "        if queued and not session.is_open:\n",
        "        if queued and session.is_busy:\n",
        (f"{SHARE}::test_acknowledgements_after_a_lost_connection_fail_and_the_session_is_reopened",),
    ),
    Mutation(
        "records that were not acquired are not returned",
        "clients/share/core.py",
        "            for offset in range(first, last + 1):\n",
        "            for offset in range(min(found, default=first), max(found, default=last) + 1):\n",
        (f"{SHARE}::test_records_that_were_not_acquired_are_not_returned",),
    ),
)

SHARE = f"{UNIT}/coordinators/test_share_partition.py"
SHARE_COORDINATOR = f"{UNIT}/coordinators/test_share_coordinator.py"
SHARE_GROUP = f"{UNIT}/coordinators/test_share_groups.py"
SHARE_OFFSETS = f"{UNIT}/coordinators/test_share_offsets.py"
SHARE_REQUESTS = f"{UNIT}/broker/test_share_group_requests.py"
SHARES = (
    Mutation(
        "a share group does not assign partitions whose share state is still being created",
        "coordinators/group/share/states.py",
        "            initializing=union(self.initializing, partitions),\n",
        "            initialized=union(self.initialized, partitions),\n",
        (f"{SHARE_GROUP}::test_creation_of_share_state_that_failed_or_was_lost_is_repeated",),
    ),
    Mutation(
        "share state is created only after the group recorded it",
        "coordinators/group/share/heartbeat.py",
        "if error is not ErrorCode.NONE:\n        return [Reply(call, ShareGroup",
        "if error is None:\n        return [Reply(call, ShareGroup",
        (f"{SHARE_GROUP}::test_share_state_is_created_after_the_record_and_not_twice",),
    ),
    Mutation(
        "share state that members use survives a creation that is repeated",
        "broker/share_effects.py",
        "UNCHOSEN_OFFSET, keeps_existing=True",
        "UNCHOSEN_OFFSET, keeps_existing=False",
        (f"{UNIT}/broker/test_share_effects.py::test_partitions_whose_state_was_created_are_reported",),
    ),
    Mutation(
        "the creation of share state that failed is not reported as done",
        "broker/share_effects.py",
        "if result.error is ErrorCode.NONE)",
        ")",
        (f"{UNIT}/broker/test_share_effects.py::test_partitions_whose_state_was_created_are_reported",),
    ),
    Mutation(
        "records that a share group accepted stay so after a restart",
        "coordinators/share/partition.py",
        "            if state not in TERMINAL:\n",
        "            if state is not None:\n",
        (
            f"{SHARE_REQUESTS}::test_acknowledged_records_survive_a_restart_of_the_broker",
            "tests/chaos/test_share_groups.py::test_accepted_records_stay_accepted_while_the_broker_is_killed",
        ),
    ),
    Mutation(
        "a record of a share group has one owner at a time",
        "coordinators/share/window.py",
        "return self.state is RecordState.AVAILABLE and self.transition is None",
        "return self.state in (RecordState.AVAILABLE, RecordState.ACQUIRED) and self.transition is None",
        ("tests/simulation/test_shares.py::test_share_partition",),
    ),
    Mutation(
        "records of a member that its share group removed are released at once",
        "broker/share_effects.py",
        "                self._storage().release_member(effect.group_id, effect.member_id)\n",
        "",
        (
            f"{SHARE_REQUESTS}::test_records_of_a_member_that_left_are_released_at_once",
            f"{SHARE_REQUESTS}::test_records_of_a_member_without_heartbeats_are_released_at_once",
        ),
    ),
    Mutation(
        "records of a member of a share group are released only after its removal is recorded",
        "coordinators/group/share/heartbeat.py",
        "if error is not ErrorCode.NONE:\n        return [] if answer",
        "if error is None:\n        return [] if answer",
        (f"{SHARE_GROUP}::test_records_are_released_only_after_the_removal_is_recorded",),
    ),
    Mutation(
        "a group with the id of a deleted share group does not use the deleted state",
        "broker/share_groups.py",
        "            self.partitions.drop(request.key)\n",
        "            pass\n",
        (f"{SHARE_REQUESTS}::test_group_with_the_id_of_a_deleted_one_starts_again",),
    ),
    Mutation(
        "share groups are refused without their feature",
        "broker/broker.py",
        "return self.feature_level(SHARE_VERSION) >= 1",
        "return True",
        (f"{SHARE_REQUESTS}::test_nothing_is_served_without_the_feature",),
    ),
    Mutation(
        "a group is not deleted while its share state is being created",
        "coordinators/group/share/initialization.py",
        " or bool(group.initializing_since_ms)\n",
        "\n",
        (f"{SHARE_GROUP}::test_group_is_not_deleted_while_its_share_state_is_created",),
    ),
    Mutation(
        "each alteration of a share group's offsets has a state epoch of its own",
        "coordinators/group/share/offsets.py",
        "    epoch = group.epoch + 1\n",
        "    epoch = group.epoch\n",
        (f"{SHARE_OFFSETS}::test_alteration_creates_the_group_and_each_one_has_a_higher_epoch",),
    ),
    Mutation(
        "the offsets of a share group with members are not altered",
        "coordinators/group/share/offsets.py",
        "    if not group.is_empty:\n",
        "    if False:\n",
        (f"{SHARE_OFFSETS}::test_group_with_members_is_refused",),
    ),
    Mutation(
        "changes of the share state of a group exclude each other",
        "coordinators/group/share/offsets.py",
        "    if is_busy(core, group):\n",
        "    if False:\n",
        (f"{SHARE_OFFSETS}::test_changes_of_share_state_exclude_each_other",),
    ),
    Mutation(
        "share state that is being deleted is not created again",
        "coordinators/group/share/initialization.py",
        "    if group.group_id in core.changing_shares:\n        return None\n",
        "",
        (f"{SHARE_GROUP}::test_member_that_joins_during_a_deletion_prevents_it",),
    ),
    Mutation(
        "a member that joined during the deletion of a share group keeps the group",
        "coordinators/group/share/initialization.py",
        "and not group.is_empty:\n        error = ErrorCode.NON_EMPTY_GROUP\n",
        "and not group.is_empty:\n        error = ErrorCode.NONE\n",
        (f"{SHARE_GROUP}::test_member_that_joins_during_a_deletion_prevents_it",),
    ),
    Mutation(
        "a share group does not take the id of another group",
        "coordinators/group/share/heartbeat.py",
        "if core.has_group(group_id) else ShareGroup(group_id)",
        "if group_id in core.share_groups else ShareGroup(group_id)",
        (f"{SHARE_GROUP}::test_group_id_of_another_type_is_refused",),
    ),
    Mutation(
        "only the member that acquired a record acknowledges it",
        "coordinators/share/acknowledgement.py",
        "        if run.member_id != self.transition.member_id:\n",
        "        if not run.member_id:\n",
        (
            f"{SHARE}::test_only_the_member_that_acquired_records_can_acknowledge_them",
            f"{UNIT}/broker/test_share_fetching.py::test_forged_members_and_epochs_are_refused",
        ),
    ),
    Mutation(
        "a record is acknowledged once",
        "coordinators/share/acknowledgement.py",
        "        if run.state is not RecordState.ACQUIRED:\n",
        "        if run.state is RecordState.AVAILABLE:\n",
        (f"{SHARE}::test_record_is_acknowledged_once",),
    ),
    Mutation(
        "acknowledgements that fail change nothing",
        "coordinators/share/partition.py",
        "                self._undo(acknowledger.transition, now_ms)\n                return refusal\n",
        "                return refusal\n",
        (f"{SHARE}::test_request_changes_all_its_records_or_none",),
    ),
    Mutation(
        "overlapping acknowledgements are refused",
        "coordinators/share/acknowledgement.py",
        "        if batch.first_offset < previous_last:  # as",
        "        if batch.first_offset < 0:  # as",
        (f"{SHARE}::test_form_of_acknowledgements",),
    ),
    Mutation(
        "records whose release is not stored yet are not delivered",
        "coordinators/share/window.py",
        "        return self.state is RecordState.AVAILABLE and self.transition is None\n",
        "        return self.state is RecordState.AVAILABLE\n",
        (f"{SHARE}::test_records_of_a_pending_release_cannot_be_acquired",),
    ),
    Mutation(
        "the start offset of a share partition waits until acknowledgements are stored",
        "coordinators/share/window.py",
        "        return self.state in TERMINAL and self.transition is None\n",
        "        return self.state in TERMINAL\n",
        (f"{SHARE}::test_start_offset_waits_for_each_acknowledgement_below_it",),
    ),
    Mutation(
        "records that were delivered too often are archived",
        "coordinators/share/window.py",
        "        if state is RecordState.AVAILABLE and self.delivery_count >= max_delivery_count:\n",
        "        if state is RecordState.AVAILABLE and max_delivery_count < 0:\n",
        (f"{SHARE}::test_record_that_was_delivered_too_often_is_archived",),
    ),
    Mutation(
        "records of aborted transactions are not delivered",
        "coordinators/share/partition.py",
        "        result = without_ranges(acquired, aborted)\n",
        "        result = acquired\n",
        (f"{SHARE}::test_records_of_aborted_transactions_are_archived",),
    ),
    Mutation(
        "the window of a share partition is bounded",
        "coordinators/share/partition.py",
        "        room = min(request.max_records, self.limits.max_record_locks - self.in_flight_count)\n",
        "        room = request.max_records\n",
        (f"{SHARE}::test_full_window_blocks_new_records_but_not_released_ones",),
    ),
    Mutation(
        "a former leader cannot write share state",
        "coordinators/share/shard.py",
        "        if request.leader_epoch != UNCHANGED and stored.fenced_below_leader_epoch > request.leader_epoch:\n",
        "        if stored is None:\n",
        (f"{SHARE_COORDINATOR}::test_earlier_leaders_and_state_epochs_are_fenced",),
    ),
    Mutation(
        "share state that its leader could not load is refused",
        "coordinators/share/shard.py",
        "        if not is_range or batch.delivery_state not in _STATES or batch.delivery_count < 0:\n",
        "        if not is_range:\n",
        (f"{UNIT}/broker/test_share_state_requests.py::test_state_that_the_leader_could_not_load_is_refused",),
    ),
    Mutation(
        "the state of a share partition fits into a record",
        "coordinators/share/shard.py",
        "    if count > MOST_BATCHES_IN_WRITE or len(stored.batches) + count > MOST_BATCHES:\n",
        "    if count > MOST_BATCHES_IN_WRITE:\n",
        (f"{SHARE_COORDINATOR}::test_number_of_stored_batches_is_limited",),
    ),
    Mutation(
        "the log of share state is pruned only below the earliest snapshot that counts",
        "coordinators/share/shard.py",
        "        return min(stored.snapshot_offset for stored in self._states.values())\n",
        "        return max(stored.snapshot_offset for stored in self._states.values())\n",
        (f"{SHARE_COORDINATOR}::test_log_is_pruned_below_the_earliest_snapshot_that_counts",),
    ),
    Mutation(
        "share acknowledgements are answered after they are stored",
        "broker/shared_partition.py",
        "        return Completion.of(DONE) if outcome is None else self._store(outcome)\n",
        "        return Completion.of(DONE) if outcome is None or self._store(outcome) else self._store(outcome)\n",
        (f"{UNIT}/broker/test_shared_partitions.py::test_acknowledgement_is_answered_only_after_it_is_stored",),
    ),
    Mutation(
        "a share partition that was fenced is loaded again",
        "broker/shared_partition.py",
        "        if error not in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):\n",
        "        if error is ErrorCode.UNKNOWN_SERVER_ERROR:\n",
        (f"{UNIT}/broker/test_shared_partitions.py::test_reset_of_the_offsets_fences_the_share_partition",),
    ),
    Mutation(
        "a share fetch of a lost connection acquires nothing",
        "broker/share_fetching.py",
        "        if not connection.closed:\n",
        "        if connection is not None:\n",
        (f"{UNIT}/broker/test_share_fetching.py::test_lost_connection_acquires_nothing",),
    ),
    Mutation(
        "a lost connection releases the records of its members of share groups",
        "broker/share_fetching.py",
        "shared.release(member.member_id)",
        "shared.release(member.group_id)",
        (f"{UNIT}/broker/test_share_fetching.py::test_lost_connection_releases_the_records_of_its_member",),
    ),
)

TRANSACTIONS = f"{UNIT}/clients/test_transactions.py"
TRANSACTIONS_SIMULATED = (
    f"{UNIT}/clients/test_producer_transactions.py::test_committed_records_are_visible_once_and_in_order_and_no_others"
)

PRODUCER_TRANSACTIONS = (
    Mutation(
        "a transaction is committed only when all of its records have their outcome",
        "clients/producer/transactions.py",
        "        if state not in ENDING or not is_drained:\n",
        "        if state not in ENDING:\n",
        (f"{TRANSACTIONS}::test_transaction_sends_the_requests_of_its_protocol",),
    ),
    Mutation(
        "a transaction with a failed record cannot be committed",
        "clients/producer/transactions.py",
        "        elif self.state in {State.IN_TRANSACTION, *ENDING, State.ABORTABLE_ERROR}:\n",
        "        elif self.state in {*ENDING, State.ABORTABLE_ERROR}:\n",
        (TRANSACTIONS_SIMULATED,),
    ),
    Mutation(
        "an abort drops records instead of sending them",
        "clients/producer/core.py",
        "        if transactions.drops_batches:\n",
        "        if transactions.error is not None and transactions.drops_batches:\n",
        (f"{UNIT}/clients/test_producer_transactions.py::test_abort_drops_records_that_were_not_sent",),
    ),
    Mutation(
        "a commit without a response is repeated",
        "clients/producer/transactions.py",
        "        if error.retriable or may_return:\n",
        "        if (error.retriable or may_return) and self.state is not State.COMMITTING:\n",
        (f"{TRANSACTIONS}::test_lost_commit_is_repeated_until_it_has_an_outcome_and_never_aborted",),
    ),
    Mutation(
        "the epoch is raised after a failed transaction",
        "clients/producer/transactions.py",
        "        needs_new_epoch = self._needs_new_epoch or self._has_lost_identity()",
        "        needs_new_epoch = self._has_lost_identity()",
        (f"{TRANSACTIONS}::test_epoch_is_raised_after_a_failed_transaction",),
    ),
    Mutation(
        "a producer cannot take over from its successor with a request that does not name its epoch",
        "clients/producer/transaction_requests.py",
        "oldest=0 if is_first else OLDEST_NEW_EPOCH",
        "oldest=0",
        (f"{TRANSACTIONS}::test_new_epoch_is_requested_only_in_versions_that_name_the_old_one",),
    ),
    Mutation(
        "an abort ends a transaction that the coordinator may have begun without a response",
        "clients/producer/transactions.py",
        "        if state is State.ABORTING and self._unconfirmed is not None:\n",
        "        if state is State.ABORTING and self._unconfirmed is not None and self._is_started:\n",
        (f"{TRANSACTIONS}::test_registration_without_a_response_is_repeated_before_an_abort",),
    ),
    Mutation(
        "records outside a transaction are refused",
        "clients/producer/accumulator.py",
        "            self.transactions.check_send()\n        partitions = self.encoder",
        "            pass\n        partitions = self.encoder",
        (f"{UNIT}/clients/test_producer_transactions.py::test_records_outside_a_transaction_are_refused",),
    ),
    Mutation(
        "a commit closes the open batches, so that later records cannot join the transaction unseen",
        "clients/producer/core.py",
        "                self.accumulator.close_batches()\n",
        "                pass\n",
        (f"{UNIT}/clients/test_producer_transactions.py::test_record_after_the_commit_began_does_not_join_its_batch",),
    ),
)

TRANSACTION = f"{UNIT}/coordinators/transaction"
COORDINATED_TRANSACTIONS = (
    Mutation(
        "a partition rejects a marker of an earlier coordinator",
        "log/producer_state.py",
        "    if marker.coordinator_epoch < entry.coordinator_epoch:\n",
        "    if marker.coordinator_epoch < -1:\n",
        ("tests/simulation/test_transactions.py::test_transactions_keep_their_invariants",),
        MANY_SEEDS,
    ),
    Mutation(
        "a failed decision about a transaction did not happen",
        "coordinators/transaction/shard.py",
        "        if event.error is ErrorCode.NONE:\n",
        "        if event.error is not None:\n",
        (f"{TRANSACTION}/test_end_transaction.py::test_decision_that_could_not_be_appended_did_not_happen",),
    ),
    Mutation(
        "no transaction begins before the markers of the previous one are written",
        "coordinators/transaction/core.py",
        "        return transactional_id in self.pending or transactional_id in self.completions\n",
        "        return transactional_id in self.pending\n",
        (f"{TRANSACTION}/test_add_partitions.py::test_partitions_wait_until_the_previous_transaction_is_complete",),
    ),
    Mutation(
        "no two changes of a transactional id are in flight",
        "coordinators/transaction/core.py",
        "        return transactional_id in self.pending or transactional_id in self.completions\n",
        "        return transactional_id in self.completions\n",
        (f"{TRANSACTION}/test_end_transaction.py::test_end_of_the_last_epoch_waits_for_the_new_producer_id",),
    ),
    Mutation(
        "an open transaction is aborted before a new producer gets its epoch",
        "coordinators/transaction/init_producer_id.py",
        "    if metadata.state is State.ONGOING:\n",
        "    if metadata is None:\n",
        (f"{TRANSACTION}/test_init_producer_id.py::test_open_transaction_is_aborted_before_a_new_epoch_is_given",),
    ),
    Mutation(
        "a producer that names an old epoch is fenced",
        "coordinators/transaction/metadata.py",
        "            if expected_epoch != self.last_producer_epoch:\n",
        "            if expected_epoch is None:\n",
        (f"{TRANSACTION}/test_init_producer_id.py::test_producer_that_names_an_old_epoch_is_fenced",),
    ),
    Mutation(
        "a fenced producer cannot add partitions",
        "coordinators/transaction/add_partitions.py",
        "    if metadata.producer_epoch != request.producer_epoch:\n        return ErrorCode.PRODUCER_FENCED\n",
        "",
        (f"{TRANSACTION}/test_init_producer_id.py::test_open_transaction_is_aborted_before_a_new_epoch_is_given",),
    ),
    Mutation(
        "a record that belongs to no transaction is not verified",
        "coordinators/transaction/add_partitions.py",
        "    part, other = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE\n",
        "    part = other = ErrorCode.NONE\n",
        (f"{TRANSACTION}/test_add_partitions.py::test_verification_tells_partitions_of_the_transaction_from_others",),
    ),
    Mutation(
        "a late EndTxn does not end the next transaction",
        "coordinators/transaction/end_transaction.py",
        "    if metadata.producer_epoch != request.producer_epoch:\n"
        "        return ErrorCode.PRODUCER_FENCED\n"
        "    if metadata.state is State.ONGOING or not request.committed:\n",
        "    if metadata.state is State.ONGOING or not request.committed:\n",
        (
            f"{TRANSACTION}/test_end_transaction.py::test_transaction_that_began_after_a_retry_was_sent_is_not_ended_by_it",
        ),
    ),
    Mutation(
        "a retry of EndTxn gets the outcome that was decided",
        "coordinators/transaction/end_transaction.py",
        "    return metadata.state is (State.COMPLETE_COMMIT if request.committed else State.COMPLETE_ABORT)\n",
        "    return metadata.state in COMPLETED\n",
        (
            f"{TRANSACTION}/test_end_transaction.py::test_retry_of_version_1_is_recognised_by_the_state",
            f"{TRANSACTION}/test_end_transaction.py::test_retry_of_version_2_is_recognised_by_the_previous_epoch",
        ),
    ),
    Mutation(
        "a producer does not get the epoch of its successor",
        "coordinators/transaction/end_transaction.py",
        "    is_versioned = metadata.client_transaction_version >= EPOCH_BUMP_SINCE\n",
        "    is_versioned = True\n",
        (f"{TRANSACTION}/test_end_transaction.py::test_predecessor_does_not_get_the_epoch_of_its_successor",),
    ),
    Mutation(
        "a producer id is replaced when its epochs are exhausted",
        "coordinators/transaction/end_transaction.py",
        "        if metadata.is_exhausted and next_producer_id == NO_PRODUCER_ID:\n",
        "        if not metadata:\n",
        (f"{TRANSACTION}/test_end_transaction.py::test_end_of_the_last_epoch_gives_a_new_producer_id",),
    ),
    Mutation(
        "a partition without a marker keeps its transaction undone",
        "coordinators/transaction/markers.py",
        "        error = event.results.get(partition, ErrorCode.REQUEST_TIMED_OUT)\n",
        "        error = event.results.get(partition, ErrorCode.NONE)\n",
        (f"{TRANSACTION}/test_markers.py::test_partition_without_an_outcome_is_retried",),
    ),
    Mutation(
        "markers that failed are written again",
        "coordinators/transaction/markers.py",
        "    if completion.unwritten:\n"
        "        _retry_later(core, transactional_id, completion, now)\n"
        "        return effects\n",
        "    completion.unwritten.clear()\n",
        (f"{TRANSACTION}/test_markers.py::test_only_missing_markers_are_written_again_after_a_growing_pause",),
    ),
    Mutation(
        "markers of decided transactions are written after a restart",
        "coordinators/transaction/shard.py",
        "            core.timers.set((Kind.MARKERS, transactional_id), now.monotonic_ms)\n",
        "            pass\n",
        (f"{TRANSACTION}/test_markers.py::test_restart_writes_all_markers_again",),
    ),
    Mutation(
        "transactions that were open before a restart time out",
        "coordinators/transaction/shard.py",
        "            core.expect_end(transactional_id, now)\n",
        "            pass\n",
        (f"{TRANSACTION}/test_timeouts.py::test_time_continues_after_a_restart",),
    ),
    Mutation(
        "a wall clock that was set back does not keep a transaction open",
        "coordinators/transaction/core.py",
        "min(max(remaining_ms, 0), metadata.timeout_ms))\n",
        "max(remaining_ms, 0))\n",
        (
            f"{TRANSACTION}/test_timeouts.py::test_wall_clock_that_was_set_back_before_a_restart_does_not_keep_a_transaction_open",
        ),
    ),
    Mutation(
        "a check of timeouts aborts a bounded number of transactions",
        "coordinators/transaction/timeouts.py",
        "    for _ in range(MOST_ABORTS):\n",
        "    for _ in range(1 << 30):\n",
        (f"{TRANSACTION}/test_timeouts.py::test_check_aborts_a_bounded_number_of_transactions",),
    ),
    Mutation(
        "a wall clock that is wrong for a moment expires no transactional ids",
        "coordinators/transaction/expiry.py",
        "    if clock.was_set(now):\n",
        "    if clock is None:\n",
        (f"{TRANSACTION}/test_timeouts.py::test_wall_clock_that_is_wrong_for_a_short_time_does_not_expire_ids",),
    ),
    Mutation(
        "a record of transactions in an unknown state is not ignored",
        "coordinators/transaction/records.py",
        "    if state is None:\n",
        "    if state is None and (state := State.EMPTY) is None:\n",
        (f"{TRANSACTION}/test_records.py::test_unknown_state_is_an_error",),
    ),
)

TASKS = "tests/spark/test_exactly_once.py"
WORKERS = "tests/spark/test_exactly_once_workers.py"
DECISIONS = f"{UNIT}/spark/test_exactly_once.py"
TABLES = "tests/spark/test_tables.py"
OTTLA_ONLY = (("OTTLA_TEST_BROKERS", "ottla"),)

SPARK_TABLES = (
    Mutation(
        "each task of a table as it was has its ends",
        "spark/table_source.py",
        "        return [TablePartition(task, fixed) for task in range(self._options.tasks)]\n",
        "        return [TablePartition(task) for task in range(self._options.tasks)]\n",
        (f"{TABLES}::test_table_as_it_was",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a repeated micro-batch reads a table up to the same ends",
        "spark/table_ends.py",
        "        if found == number:\n",
        "        if False:\n",
        (f"{TABLES}::test_each_read_of_a_micro_batch_has_the_same_records",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task that chooses the ends of a table finds out whether another task has, after it has fenced that task",
        "spark/table_ends.py",
        "            ends = chosen_ends(found, batch.number)\n            if ends is not None:\n",
        "            ends = chosen_ends(found, batch.number)\n            if False:\n",
        (f"{TABLES}::test_tasks_that_choose_at_the_same_time_agree",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task that is cut off does not choose the ends of a table",
        "spark/table_ends.py",
        "        elif found > number:\n",
        "        elif False:\n",
        (f"{TABLES}::test_task_of_an_older_micro_batch_is_refused",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a worker does not use its copy of a table that was recreated",
        "spark/table_reader.py",
        "    if copy.topic_id != extent.topic_id or not _is_within(copy, extent):\n",
        "    if not _is_within(copy, extent):\n",
        (f"{TABLES}::test_recreated_topic_and_deleted_records_are_not_in_the_copy",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a reader that stays open finds a partition that was added",
        "clients/consumer/range_core.py",
        "        self._metadata.expedite(is_due=known is not None and tp.partition not in known)\n",
        "        self._metadata.expedite(is_due=known is None)\n",
        (f"{TABLES}::test_partition_that_was_added_is_read",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a table as it was is refused if compaction may have removed its records",
        "spark/table_history.py",
        "    return count == end - first\n",
        "    return count > 0\n",
        ("tests/spark/test_table_lookup.py::test_history_with_gaps_and_no_repeated_key_is_unknown",),
        OTTLA_ONLY,
    ),
    Mutation(
        "records that were deleted from a topic are not in the copy of a worker",
        "spark/table_reader.py",
        "    part.drop_before(first)\n",
        "",
        (f"{TABLES}::test_recreated_topic_and_deleted_records_are_not_in_the_copy",),
        OTTLA_ONLY,
    ),
    Mutation(
        "an interrupted reset is completed with the groups of the pipeline",
        "streams/resetting.py",
        "dump_starts(reset.starts, reset.groups)",
        "dump_starts(reset.starts)",
        ("tests/streams/test_reset_crashes.py::test_reset_that_crashed_at_any_step_is_completed_by_the_next_one",),
        OTTLA_ONLY,
    ),
)

SPARK_EXACTLY_ONCE = (
    Mutation(
        "offsets of a commit follow the records of the transaction",
        "clients/producer/transactions.py",
        "            if self._offsets and (is_drained or state is State.IN_TRANSACTION):\n",
        "            if self._offsets:\n",
        (f"{UNIT}/clients/test_transactions.py::test_offsets_of_a_commit_follow_the_records_and_are_committed_once",),
    ),
    Mutation(
        "a commit that is called again commits its offsets once",
        "clients/producer/transactions.py",
        "        if is_new and offsets is not None:\n",
        "        if offsets is not None:\n",
        (f"{UNIT}/clients/test_transactions.py::test_offsets_of_a_commit_follow_the_records_and_are_committed_once",),
    ),
    Mutation(
        "a task of Spark fences earlier attempts before it reads the marker",
        "spark/transactional_writer.py",
        "        producer.init_transactions(transactional_id=attempt.transactional_id)\n"
        "        marker = read_marker(admin, attempt)\n",
        "        marker = read_marker(admin, attempt)\n"
        "        producer.init_transactions(transactional_id=attempt.transactional_id)\n",
        (f"{TASKS}::test_zombie_that_commits_when_the_next_attempt_has_read_the_marker_is_fenced",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task of Spark checks the layout in the first batch of a run, also if a worker has left a producer",
        "spark/exactly_once.py",
        "    return attempt.number == 0 and kept.run == attempt.run and kept.batches == attempt.batch\n",
        "    return attempt.number == 0 and kept.batches == attempt.batch\n",
        (f"{WORKERS}::test_kept_producer_does_not_spare_the_checks_of_a_new_run",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a repeated task of Spark fences the attempts before it, also if a worker has left a producer",
        "spark/exactly_once.py",
        "    return attempt.number == 0 and kept.run == attempt.run and kept.batches == attempt.batch\n",
        "    return kept.run == attempt.run and kept.batches == attempt.batch\n",
        (f"{WORKERS}::test_second_attempt_of_a_task_fences_the_first_one_in_another_worker",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task with a left producer reads the marker unless the producer has written the batch before",
        "spark/exactly_once.py",
        "    return attempt.number == 0 and kept.run == attempt.run and kept.batches == attempt.batch\n",
        "    return attempt.number == 0 and kept.run == attempt.run\n",
        (f"{WORKERS}::test_executor_that_wrote_the_last_batch_of_a_task_neither_fences_nor_reads",),
        OTTLA_ONLY,
    ),
    Mutation(
        "only one process continues with a left producer",
        "spark/left_producers.py",
        "            os.pwrite(file, TAKEN, 0)\n        except",
        "            assert file\n        except",
        (f"{WORKERS}::test_only_one_process_gets_what_was_left",),
    ),
    Mutation(
        "an attempt that fences removes the producer that was left",
        "spark/transactional_writer.py",
        "    left = place.take()\n",
        "    left = place.take() if attempt.number == 0 else None\n",
        (f"{WORKERS}::test_attempt_that_fences_removes_what_was_left",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a producer of protocol 1, whose sequence numbers go on, is not left",
        "clients/producer/transactions.py",
        "        return left if self.is_v2 else None\n",
        "        return left\n",
        (
            f"{UNIT}/clients/test_transactions.py::test_producer_of_protocol_1_is_not_left_since_its_sequence_numbers_go_on",
        ),
    ),
    Mutation(
        "a producer whose task has failed is not used again",
        "spark/client_pool.py",
        "            _close(client)\n            raise\n",
        "            self._idle.setdefault(key, []).append((time.monotonic(), client))\n            raise\n",
        (f"{WORKERS}::test_kept_producer_is_refused_after_another_worker_has_written_the_batch",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task of Spark commits its marker in the transaction of its rows",
        "spark/transactional_writer.py",
        "    producer.commit_transaction(offsets=offsets, group=attempt.transactional_id)\n",
        "    assert offsets\n    producer.commit_transaction()\n",
        (f"{TASKS}::test_each_attempt_of_a_task_that_has_written_writes_nothing",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task of Spark waits for slow rows for as long as the producer does",
        "spark/transactional_writer.py",
        "        is_early = isinstance(error, RequestTimedOut) and not task.is_acknowledged\n",
        "        is_early = False\n",
        (f"{TASKS}::test_rows_may_take_longer_than_the_call_that_commits_them",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task of Spark reports the error of a row, not that of its transaction",
        "spark/transactional_writer.py",
        "        task.finish()  # The error of a row",
        "        # The error of a row",
        (f"{TASKS}::test_row_that_a_broker_refuses_is_the_error_of_its_task",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a task of Spark that has written writes nothing",
        "spark/transactional_writer.py",
        "        if has_written(attempt, marker):\n",
        "        if False:\n",
        (
            f"{TASKS}::test_each_attempt_of_a_task_that_has_written_writes_nothing",
            f"{TASKS}::test_commit_without_a_response_is_not_written_again",
            "tests/spark/test_exactly_once_faults.py::test_restart_of_the_broker_at_the_end_of_a_transaction_writes_once",
        ),
        OTTLA_ONLY,
    ),
    Mutation(
        "a second write of the same name is refused after a restart, too",
        "spark/transactional_writer.py",
        "    if marker.run != attempt.run:\n        # So that",
        "    if False:\n        # So that",
        (f"{TASKS}::test_two_writes_of_one_name_in_one_batch_are_refused_also_after_a_restart",),
        OTTLA_ONLY,
    ),
    Mutation(
        "a second write of the same name is refused",
        "spark/exactly_once.py",
        "    if marker.run == attempt.run and marker.write != attempt.write:\n",
        "    if False:\n",
        (f"{DECISIONS}::test_a_marker_of_another_write_is_refused",),
    ),
    Mutation(
        "changed settings are refused while a batch is half written",
        "spark/markers.py",
        "        check_layout(attempt, map(_marker, admin.list_offsets_of_groups(tasks).values()))\n",
        "        assert tasks is not None\n",
        (f"{TASKS}::test_changed_layout_of_a_half_written_batch_is_refused",),
        OTTLA_ONLY,
    ),
    Mutation(
        "adaptive execution, which may give a repeated batch other tasks, is refused",
        "spark/exactly_once.py",
        "        _check_adaptive(once, get_property)\n",
        "        assert once is not None\n",
        (f"{DECISIONS}::test_adaptive_execution_is_refused_with_the_setting_to_change",),
    ),
    Mutation(
        "another number of rows is refused while a batch is half written",
        "spark/exactly_once.py",
        "    if marker.layout is None or rows == marker.rows:\n",
        "    if True:\n",
        (f"{DECISIONS}::test_another_number_of_rows_is_refused",),
    ),
    Mutation(
        "another number of tasks is noticed while a batch is half written",
        "spark/markers.py",
        "        if marker.batches > batch:\n",
        "        if False:\n",
        (f"{TASKS}::test_task_that_no_longer_exists_is_noticed_and_what_it_left_open_is_ended",),
        OTTLA_ONLY,
    ),
    Mutation(
        "transactions of tasks that no longer exist are ended",
        "spark/markers.py",
        "        admin.fence_producers(others)\n",
        "",
        (f"{TASKS}::test_task_that_no_longer_exists_is_noticed_and_what_it_left_open_is_ended",),
        OTTLA_ONLY,
    ),
    Mutation(
        "`ottla txn abort` does not abort one partition of a transaction that its coordinator will end",
        "cli/txn.py",
        "    if not hanging(admin, [row]):\n",
        "    if False:\n",
        ("tests/cli/test_txn.py::test_open_transaction_is_shown_and_aborted_by_fencing",),
        OTTLA_ONLY,
    ),
)

QUORUM = (
    Mutation(
        "a voter remembers its vote",
        "raft/voting.py",
        "        q.add_vote(request.candidate)\n",
        "        pass\n",
        (f"{ELECTIONS}::test_one_candidate_per_epoch_gets_the_vote", RAFT_SEEDS, SHELL_SEEDS),
    ),
    Mutation(
        "an election is on disk before a message depends on it",
        "raft/core.py",
        "            effects.insert(0, Persist(",
        "            messages.append(Persist(",
        (f"{ELECTIONS}::test_vote_is_stored_before_the_response", RAFT_SEEDS),
    ),
    Mutation(
        "a voter checks the epoch of a candidate",
        "raft/voting.py",
        "    if request.epoch < q.epoch:\n",
        "    if request.epoch < 0:\n",
        (f"{ELECTIONS}::test_candidate_of_an_old_epoch_is_fenced",),
    ),
    Mutation(
        "a leader checks the epoch of a fetch",
        "raft/state.py",
        "        if epoch < self.epoch:\n",
        "        if epoch < 0:\n",
        (f"{REPLICATION}::test_fetch_with_another_epoch_gets_kafkas_error",),
    ),
    Mutation(
        "a vote goes only to a log with all records of the voter",
        "raft/ballot.py",
        "    return is_up_to_date and not election.has_leader\n",
        "    return not election.has_leader\n",
        (f"{ELECTIONS}::test_only_a_log_with_all_own_records_gets_the_vote", RAFT_SEEDS),
        MANY_SEEDS,
    ),
    Mutation(
        "a candidate names only records that are on its disk",
        "raft/voting.py",
        "q.epoch, q.log.flushed_end, pre_vote)",
        "q.epoch, q.log.end, pre_vote)",
        (f"{ELECTIONS}::test_candidate_names_the_end_of_its_log_on_disk",),
    ),
    Mutation(
        "a voter that hears its leader rejects pre-votes",
        "raft/voting.py",
        " and not state.has_fetched",
        "",
        (f"{ELECTIONS}::test_follower_that_hears_its_leader_rejects_pre_votes",),
    ),
    Mutation(
        "the quorum commits what a majority has",
        "raft/quorum.py",
        "    return held[majority(voters) - 1]\n",
        "    return held[0]\n",
        (f"{REPLICATION}::test_record_is_committed_when_a_majority_has_it_on_disk", RAFT_SEEDS),
    ),
    Mutation(
        "a record of an old epoch is committed together with one of the leader's own",
        "raft/leading.py",
        "agreed > leader.high_watermark and agreed > leader.epoch_start_offset",
        "agreed > leader.high_watermark",
        (f"{RAFT}::test_record_of_an_old_epoch_is_not_committed_without_one_of_the_leaders_own",),
    ),
    Mutation(
        "the leader counts its own log as far as it is on disk",
        "raft/leading.py",
        "    leader.replica(leader.key).end_offset = q.log.flushed_offset\n",
        "    leader.replica(leader.key).end_offset = q.log.end.offset\n",
        (f"{REPLICATION}::test_record_is_committed_when_a_majority_has_it_on_disk", RAFT_SEEDS),
    ),
    Mutation(
        "a follower commits only what is on its own disk",
        "raft/state.py",
        "        return self.log.flushed_offset if self.must_flush else self.log.end.offset\n",
        "        return self.log.end.offset\n",
        (f"{REPLICATION}::test_follower_fetches_on_when_everything_is_on_disk",),
    ),
    Mutation(
        "a leader detects a log that diverges before its end",
        "raft/log_state.py",
        "own.epoch != other.epoch or own.offset < other.offset",
        "own.offset < other.offset",
        (RAFT_SEEDS,),
        MANY_SEEDS,
    ),
    Mutation(
        "a follower does not truncate committed records",
        "raft/following.py",
        "    if offset < q.high_watermark:\n",
        "    if offset < 0:\n",
        (f"{REPLICATION}::test_truncation_below_the_high_watermark_stops_the_node",),
    ),
    Mutation(
        "a truncated log has the previous voters",
        "raft/state.py",
        "        self.voters.truncate_from(offset)\n",
        "",
        (f"{REPLICATION}::test_truncation_restores_the_previous_voters",),
    ),
    Mutation(
        "the leader of a minority resigns",
        "raft/leading.py",
        " or q.now_ms >= leader.check_deadline_ms():",
        ":",
        (f"{REPLICATION}::test_leader_without_a_majority_resigns_and_refuses_the_fetches_that_wait",),
    ),
    Mutation(
        "voters change one at a time",
        "raft/voter_changes.py",
        "    if leader.change is not None or leader.upgrade is not None:\n        return TIMED_OUT",
        "    if leader.upgrade is not None:\n        return TIMED_OUT",
        (f"{VOTERS}::test_one_change_at_a_time",),
    ),
    Mutation(
        "a change of the voters waits for the commit of the previous one",
        "raft/voter_changes.py",
        "    if not _is_voter_set_committed(q, leader):\n        return TIMED_OUT,",
        "    if leader.epoch_start_offset < 0:\n        return TIMED_OUT,",
        (f"{VOTERS}::test_one_change_at_a_time",),
    ),
    Mutation(
        "a new leader changes no voters before a commit of its own",
        "raft/voter_changes.py",
        "    if leader.high_watermark < 0:\n",
        "    if leader.high_watermark < -1:\n",
        (f"{VOTERS}::test_no_change_before_a_record_of_the_own_epoch_is_committed",),
    ),
    Mutation(
        "a leader that removed itself and failed can still be elected",
        "raft/state.py",
        "        return not is_committed and self.voters.previous.is_voter(self.config.key)\n",
        "        return False\n",
        ("tests/scenarios/test_scenarios.py::test_scenario_has_the_expected_effects[raft_removed_leader]",),
    ),
    Mutation(
        "a voter does not forget its log, even if it cannot be read",
        "broker/metadata_log.py",
        "options.quorum is not None and not options.quorum.can_become_voter\n",
        "options.quorum is not None\n",
        (
            f"{UNIT}/broker/quorum/test_commits.py::test_broker_without_a_vote_fetches_all_metadata_again_if_it_cannot_be_read",
        ),
    ),
)

CHANGES = f"{UNIT}/controller/test_partition_change.py::test_partition_changes_by_kafkas_rules"
ALTERING = f"{UNIT}/controller/test_alter_partition.py"
BEATS = f"{UNIT}/controller/test_heartbeats.py"
DUTIES = f"{UNIT}/broker/control/test_duties.py"
LIFE = f"{UNIT}/broker/control/test_lifecycle.py"
MEMBERSHIP = "tests/cluster/test_membership.py"

CONTROLLER = (
    Mutation(
        "a replica outside the ISR does not lead without an unclean election",
        "controller/partition_change.py",
        "    if rules.election is Election.UNCLEAN:\n",
        "    if True:\n",
        (f"{CHANGES}[another replica waits for it]",),
    ),
    Mutation(
        "an eligible leader replica leads only if the ISR is empty",
        "controller/partition_change.py",
        "(r in plan.isr or (not plan.isr and r in plan.elr))",
        "(r in plan.isr or not plan.isr)",
        (f"{CHANGES}[but only while it is available]",),
    ),
    Mutation(
        "a replica that lost its records is not eligible to lead",
        "controller/partition_change.py",
        "    excluded = {*plan.isr, target.unclean_shutdown}\n",
        "    excluded = {*plan.isr}\n",
        (f"{CHANGES}[a replica that lost its records is not eligible]",),
    ),
    Mutation(
        "leaders and controller apply the same min.insync.replicas from the cluster's first record on",
        "controller/features.py",
        "    return [*records, *_eligible_leader_records(state)]\n",
        "    return [*records]\n",
        (f"{UNIT}/controller/test_cluster.py::test_new_cluster_with_eligible_leaders_has_min_insync_replicas",),
    ),
    Mutation(
        "a reassignment completes only when every remaining replica is in sync",
        "controller/partition_change.py",
        " or not set(replicas) <= set(isr):\n",
        ":\n",
        (f"{CHANGES}[a remaining replica out of sync delays the end]",),
    ),
    Mutation(
        "the last in-sync replica stays in the ISR without eligible leader replicas",
        "controller/partition_change.py",
        "        plan = plan._replace(isr=partition.isr)\n",
        "        pass\n",
        (f"{CHANGES}[the last in-sync replica stays]",),
    ),
    Mutation(
        "a second broker cannot take the id of a live one",
        "controller/brokers.py",
        "        _check_no_live_session(state, existing, request, now_ms)\n",
        "        pass\n",
        (f"{BEATS}::test_second_broker_with_a_live_id_is_rejected_until_the_session_expires",),
    ),
    Mutation(
        "a broker whose process may live is not replaced by one with other directories",
        "controller/brokers.py",
        "    if is_replaced and state.sessions",
        "    if state.sessions",
        (f"{DUTIES}::test_previous_process_is_replaced_before_its_session_ends_only_if_its_connection_closed",),
    ),
    Mutation(
        "a closed connection alone does not fence a broker",
        "broker/control/duties.py",
        "            if done.result() and not",
        "            if not",
        (f"{DUTIES}::test_closed_connection_alone_fences_no_broker",),
    ),
    Mutation(
        "a broker that connected again is not fenced",
        "broker/control/duties.py",
        "            if done.result() and not self._connections.is_connected(broker_id):\n",
        "            if done.result():\n",
        (f"{DUTIES}::test_broker_that_connected_again_during_the_probe_is_not_fenced",),
    ),
    Mutation(
        "evidence about an earlier registration does not fence the present one",
        "controller/heartbeats.py",
        "    if broker is None or broker.epoch != epoch or broker.fenced or",
        "    if broker is None or broker.fenced or",
        (f"{DUTIES}::test_broker_that_registered_again_during_the_probe_is_not_fenced",),
    ),
    Mutation(
        "a broker whose process has ended is fenced before its session expires",
        "broker/control/duties.py",
        "        self._submit(lambda controller: controller.fence_dead_broker(broker.broker_id, broker.epoch))\n",
        "",
        (MEMBERSHIP + "::test_dead_brokers_are_replaced_at_once_and_return",),
    ),
    Mutation(
        "a broker that stops moves its leaderships first",
        "broker/control/lifecycle.py",
        "        if self.state is LifecycleState.RUNNING and self._is_registered:\n",
        "        if False:\n",
        (MEMBERSHIP + "::test_stopped_broker_moves_its_leaderships_first",),
    ),
    Mutation(
        "a controller that did not run does not expire sessions",
        "broker/control/duties.py",
        "        if late_ms > LATE_MS:\n",
        "        if False:\n",
        (f"{DUTIES}::test_sessions_are_extended_if_this_process_was_stopped",),
    ),
    Mutation(
        "a process with the id of a live broker does not replace it",
        "controller/brokers.py",
        "        _check_no_live_session(state, existing, request, now_ms)\n",
        "        pass\n",
        (f"{LIFE}::test_registration_is_repeated_while_another_process_has_the_id_and_the_node_stops_at_the_deadline",),
    ),
    Mutation(
        "a node that cannot belong to the cluster stops",
        "broker/control/lifecycle.py",
        "        if code in _FINAL:\n",
        "        if False:\n",
        (f"{LIFE}::test_hopeless_registration_stops_the_node_with_one_line",),
    ),
    Mutation(
        "a request with a forged broker epoch changes nothing",
        "controller/brokers.py",
        "    if broker.epoch != epoch:\n",
        "    if False:\n",
        (f"{UNIT}/broker/control/test_broker_requests.py::test_forged_broker_epoch_is_refused",),
    ),
    Mutation(
        "the controller is notified of a failed log directory",
        "broker/control/lifecycle.py",
        "            offline_log_dirs=list(offline),\n",
        "",
        (f"{LIFE}::test_failed_directory_is_reported_at_once",),
    ),
    Mutation(
        "a heartbeat of an older incarnation changes nothing",
        "controller/brokers.py",
        "    if broker.epoch != epoch:\n",
        "    if broker.epoch < epoch:\n",
        (f"{BEATS}::test_heartbeat_with_an_old_or_unknown_epoch_changes_nothing",),
    ),
    Mutation(
        "a broker serves only after it has read its registration",
        "controller/heartbeats.py",
        "BrokerState.UNFENCED if caught_up and not",
        "BrokerState.UNFENCED if not",
        (f"{BEATS}::test_broker_is_unfenced_only_after_it_has_read_its_registration",),
    ),
    Mutation(
        "a late heartbeat does not unfence a broker that led partitions and shut down",
        "controller/heartbeats.py",
        "        if broker.in_controlled_shutdown or state.sessions.has_stopped(",
        "        if state.sessions.has_stopped(",
        (f"{BEATS}::test_new_active_controller_does_not_unfence_a_broker_that_shut_down",),
    ),
    Mutation(
        "a late heartbeat does not unfence a broker that led nothing and shut down",
        "controller/heartbeats.py",
        "        sessions.note_stopped(broker.broker_id, broker.epoch)\n",
        "        pass\n",
        (f"{BEATS}::test_late_heartbeat_does_not_unfence_a_broker_that_shut_down",),
    ),
    Mutation(
        "a node of a running cluster does not stop because controllers have another cluster id",
        "broker/quorum/replica.py",
        "        if not self._had_leader:\n            self.fail",
        "        if True:\n            self.fail",
        (f"{UNIT}/broker/quorum/test_quorum.py::test_node_of_a_running_cluster_does_not_stop_because_of_strangers",),
    ),
    Mutation(
        "an expired broker whose fencing was not appended is fenced by the next call",
        "controller/heartbeats.py",
        "            return Outcome(records, True)\n        state",
        "            return Outcome(records, state.sessions.end(broker_id) is None)\n        state",
        (f"{BEATS}::test_expired_broker_is_fenced_again_if_the_record_was_not_appended",),
    ),
    Mutation(
        "a replica that restarted since the leader saw it does not join the ISR",
        "controller/alter_partition.py",
        " and member.broker_epoch in (ANY_EPOCH, broker.epoch)\n",
        "\n",
        (f"{ALTERING}::test_replica_that_may_lack_records_does_not_join_the_isr[restarted]",),
    ),
    Mutation(
        "a former leader does not change the ISR",
        "controller/alter_partition.py",
        "    if data.leader_epoch < partition.leader_epoch:\n",
        "    if False:\n",
        (f"{ALTERING}::test_invalid_changes_of_the_isr_change_nothing[isr2-changes2-74]",),
    ),
)

PARTITION_REPLICATION = (
    Mutation(
        "a record is committed when every in-sync replica has it",
        "replication/leader.py",
        "            if end < lowest and (replica.node_id in maximal",
        "            if end < 0 and (replica.node_id in maximal",
        (f"{REPLICAS}/test_leader.py::test_high_watermark_waits_for_every_in_sync_replica", REPLICAS_WORLD),
    ),
    Mutation(
        "a record is committed when every proposed in-sync replica has it",
        "replication/leader.py",
        "            if end < lowest and (replica.node_id in maximal",
        "            if end < lowest and (replica.node_id in self.isr",
        (REPLICAS_WORLD,),
    ),
    Mutation(
        "the high watermark does not advance below min.insync.replicas",
        "replication/leader.py",
        "        if len(self.isr) < self.effective_min_isr:\n            return current\n",
        "",
        (f"{REPLICAS}/test_leader.py::test_high_watermark_stays_below_min_insync_replicas",),
    ),
    Mutation(
        "a follower joins the ISR when it has the records of earlier leaders",
        "replication/leader.py",
        "max(high_watermark, self.epoch_start_offset)",
        "high_watermark",
        (f"{REPLICAS}/test_leader.py::test_follower_below_the_start_of_the_leader_epoch_does_not_join",),
    ),
    Mutation(
        "a broker that was registered again does not join the ISR by an earlier fetch",
        "replication/leader.py",
        "        return replica.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)\n",
        "        return True\n",
        (f"{REPLICAS}/test_leader.py::test_unavailable_broker_does_not_join_the_isr[old]",),
    ),
    Mutation(
        "a follower truncates to the end of the leader's epoch",
        "replication/follower.py",
        "    if own_epoch != leader.epoch:\n        return min(own_end, end)\n"
        "    return min(own_end, leader.end_offset, end)\n",
        "    return end\n",
        (f"{REPLICAS}/test_follower.py::test_truncation_offset", REPLICAS_WORLD),
    ),
    Mutation(
        "a follower appends only the records that it requested",
        "replication/follower.py",
        "    if requested[:3] != present[:3]:\n",
        "    if False:\n",
        (f"{REPLICAS}/test_follower.py::test_answer_to_another_position_or_epoch_changes_nothing",),
    ),
    Mutation(
        "a follower does not truncate to its high watermark",
        "broker/replication/fetcher.py",
        "        self._delayed.pop(key, None)\n        self._want_flushed(key, followed)\n",
        "        partition.log.truncate_to(partition.log.high_watermark)\n        self._want(key, partition)\n",
        (f"{REPLICATED}::test_follower_of_a_new_leader_retains_acknowledged_records_above_its_high_watermark",),
    ),
    Mutation(
        "a follower syncs a truncation before it fetches on",
        "broker/replication/fetcher.py",
        "        followed.partition.truncated().on_done(lambda done: self._flushed(key, followed, done))\n",
        "        self._want(key, followed.partition)\n",
        (f"{REPLICATED}::test_follower_syncs_a_truncation_before_it_appends",),
    ),
    Mutation(
        "acks=all waits for the in-sync replicas",
        "broker/partition.py",
        "self._replicated(local_end)\n        if high_watermark",
        "local_end\n        if high_watermark",
        (
            f"{REPLICATED}::test_records_are_acknowledged_when_all_replicas_have_them",
            f"{REPLICATED}::test_acknowledged_records_survive_failures",
        ),
    ),
    Mutation(
        "the leader compares the epochs of a follower's fetch",
        "broker/fetching.py",
        "            if diverging is not None:\n",
        "            if False:\n",
        (f"{REPLICATED}::test_acknowledged_records_survive_failures",),
    ),
    Mutation(
        "a new leader does not take records as committed that it has not seen to be",
        "broker/partition.py",
        "self._local_end if replication is None else log.high_watermark\n",
        "self._local_end\n",
        (f"{UNIT}/broker/test_replicated_partition.py::test_new_leader_shows_only_what_it_knows_to_be_committed",),
    ),
    Mutation(
        "the CRC of fetched batches is checked",
        "log/follower.py",
        "        if header.last_offset_delta < 0 or not check_crc(view, position, size):\n",
        "        if header.last_offset_delta < 0:\n",
        (f"{STORAGE}/test_follower.py::test_corrupt_batch_is_not_appended",),
    ),
)

CLUSTER = (
    Mutation(
        "acks=all waits for the in-sync replicas of real nodes",
        "broker/partition.py",
        "self._replicated(local_end)\n        if high_watermark",
        "local_end\n        if high_watermark",
        (CLUSTER_SEED,),
        CLUSTER_SEEDS,
    ),
    Mutation(
        "a coordinator of real nodes responds when its record is committed",
        "broker/coordinator_runtime.py",
        "        if runner.committed_end >= runner.appended_end and not runner.waiting:\n            for effect",
        "        if runner.waiting is not None:\n            for effect",
        (CLUSTER_SEED,),
        CLUSTER_SEEDS,
    ),
    Mutation(
        "the leader compares the epochs of fetches between real nodes",
        "broker/fetching.py",
        "            if diverging is not None:\n",
        "            if False:\n",
        (CLUSTER_SEED,),
        CLUSTER_SEEDS,
    ),
    Mutation(
        "a real node has its vote on disk",
        "broker/quorum/replica.py",
        "                write_election(self.log, effect)\n",
        "                pass\n",
        (CLUSTER_SEED,),
        CLUSTER_SEEDS,
    ),
    Mutation(
        "a record is acknowledged when all in-sync replicas have it",
        "replication/leader.py",
        "            if end < lowest and (replica.node_id in maximal or",
        "            if end < lowest and (replica.node_id < 0 or",
        (REPLICATION_SEEDS,),
    ),
    Mutation(
        "a record waits for the in-sync replicas that are proposed, too",
        "replication/leader.py",
        "        maximal = self._maximal_isr\n",
        "        maximal = frozenset(self.isr)\n",
        (REPLICATION_SEEDS,),
    ),
    Mutation(
        "a follower truncates to the end of an epoch, not to the high watermark",
        "replication/follower.py",
        "truncation_offset(answer.diverging, log))",
        "log.high_watermark)  # type: ignore[attr-defined]",
        (REPLICATION_SEEDS,),
        MANY_SEEDS,
    ),
    Mutation(
        "a follower joins the in-sync replicas with all records of earlier epochs",
        "replication/leader.py",
        "replica.log_end_offset < max(high_watermark, self.epoch_start_offset):\n",
        "replica.log_end_offset < high_watermark:\n",
        (REPLICATION_SEEDS,),
        MANY_SEEDS,
    ),
    Mutation(
        "the controller checks the partition epoch of a change of the in-sync replicas",
        "controller/alter_partition.py",
        "    if data.partition_epoch < partition.partition_epoch:\n",
        "    if data.partition_epoch < 0:\n",
        (REPLICATION_SEEDS,),
        MANY_SEEDS,
    ),
    Mutation(
        "a broker that starts again leaves the in-sync replicas",
        "controller/brokers.py",
        "yield from leaders.records_for_departure(state, request.broker_id, unclean=not clean_shutdown)\n",
        "[]\n",
        (CONTROLLER_SEEDS, REPLICATION_SEEDS),
    ),
    Mutation(
        "a leader is elected among the in-sync replicas",
        "controller/partition_change.py",
        "(r in plan.isr or (not plan.isr and r in plan.elr))",
        "True",
        (CONTROLLER_SEEDS, REPLICATION_SEEDS),
    ),
    Mutation(
        "a leader is elected among the active brokers",
        "controller/leaders.py",
        "        return broker is not None and broker.is_active and broker.has_online",
        "        return broker is not None and broker.has_online",
        (CONTROLLER_SEEDS,),
    ),
    Mutation(
        "another leader of a partition has a later epoch",
        "metadata/delta.py",
        '        changes["leader_epoch"] = before.leader_epoch + 1\n',
        "        pass\n",
        (CONTROLLER_SEEDS,),
    ),
    Mutation(
        "only active brokers become in-sync replicas",
        "controller/alter_partition.py",
        "    return broker is not None and broker.is_active and",
        "    return broker is not None and",
        (CONTROLLER_SEEDS,),
    ),
    Mutation(
        "a follower knows the producers of the batches that it fetches",
        "log/follower.py",
        "            log.producers.record(header, marker, header.base_offset, segments.active.txn_index)\n",
        "            pass\n",
        (EXACTLY_ONCE_SEEDS,),
    ),
    Mutation(
        "a truncation takes back what the log knows of producers",
        "log/log.py",
        "        producers.load_newest(self.segments[0].base_offset, self.context.clock.wall_ms())\n"
        "        replay_producers(self.segments, producers, end)\n",
        "",
        (EXACTLY_ONCE_SEEDS,),
        MANY_SEEDS,
    ),
    Mutation(
        "a truncation is on disk before other records are at its place",
        "log/log.py",
        "        if sync:\n            self.flush()\n",
        "",
        (f"{STORAGE}/test_follower.py::test_power_cut_after_a_truncation_leaves_a_prefix_of_what_was_written",),
    ),
    Mutation(
        "an operation of the controller is answered when a majority has its records",
        "broker/metadata_log.py",
        "        if end_offset <= self.raft.high_watermark and not self._waiting:\n",
        "        if True:\n",
        (SHELL_SEEDS,),
    ),
    Mutation(
        "an observer that knows only the number of its leader follows it",
        "raft/news.py",
        " and (not q.election.has_leader or q.role is Role.UNATTACHED):\n",
        " and not q.election.has_leader:\n",
        (f"{REPLICATION}::test_restarted_observer_follows_the_leader_that_it_knows_only_by_its_number",),
    ),
)

MOVED = f"{STORAGE}/test_moves.py"
DIRECTORY_MOVES = f"{UNIT}/broker/test_directory_moves.py"
MOVES = (
    Mutation(
        "what was on disk before a move is on disk after it",
        "log/moves.py",
        "        if future.flushed_offset < log.flushed_offset:\n",
        "        if future.flushed_offset > log.log_end_offset:\n",
        (f"{DIRECTORY_MOVES}::test_records_on_disk_stay_on_disk_when_the_copy_takes_over",),
    ),
    Mutation(
        "of two logs that a move left, the complete one counts",
        "log/relocation.py",
        "    if read_mark(files, path) == known.log_directory.directory_id:\n",
        "    if read_mark(files, path) == ():\n",
        (f"{MOVED}::test_failure_at_any_moment_of_a_move_loses_nothing",),
    ),
    Mutation(
        "a copy loses what its log lost in a power cut before the log gets other records",
        "log/manager.py",
        "            offset = divergence(log, future) if log is not None else None\n",
        "            offset = None\n",
        (f"{MOVED}::test_failure_at_any_moment_of_a_move_loses_nothing",),
    ),
    Mutation(
        "a copy is truncated with its log",
        "log/moves.py",
        "        if offset is not None and offset < future.log_end_offset:\n",
        "        if offset is not None and offset < 0:\n",
        (f"{MOVED}::test_copy_is_truncated_with_its_log",),
    ),
    Mutation(
        "compaction waits for a move",
        "log/cleaner.py",
        "        return log.topic_partition in self.manager.futures\n",
        "        return False\n",
        (f"{MOVED}::test_compaction_waits_for_a_move",),
    ),
    Mutation(
        "a moved log knows the batches that its producers may resend",
        "log/moves.py",
        "        future.producers.take_over(log.producers)\n",
        "",
        (f"{MOVED}::test_log_moves_with_its_producers_and_its_log_start",),
    ),
    Mutation(
        "a copy takes over when the controller knows its directory",
        "broker/replication/directory_moves.py",
        "        if not self._is_assigned(move, self._ports.image()):\n",
        "        if not move:\n",
        (f"{DIRECTORY_MOVES}::test_copy_waits_until_the_metadata_shows_its_directory",),
    ),
    Mutation(
        "the copy of a log in an offline directory does not take its place",
        "log/manager.py",
        "        if not all(directory.online for directory in self._directories):\n",
        "        if not self._directories:\n",
        (f"{MOVED}::test_copy_takes_the_place_of_its_log_only_if_that_does_not_exist",),
    ),
    Mutation(
        "a throttled follower in sync stays in sync",
        "broker/fetching.py",
        "        return not is_in_sync and quota.is_throttled(partition.topic_partition) and quota.wait_ms() > 0\n",
        "        return quota.is_throttled(partition.topic_partition) and quota.wait_ms() > 0\n",
        (f"{UNIT}/broker/test_replication_quotas.py::test_follower_in_sync_does_not_wait",),
    ),
    Mutation(
        "a throttled follower that has everything fetches on",
        "broker/replication/fetcher.py",
        "        return quota.wait_ms() if data.high_watermark > log.log_end_offset else 0\n",
        "        return quota.wait_ms()\n",
        (f"{UNIT}/broker/test_replication_quotas.py::test_throttled_follower_fetches_later_unless_it_has_everything",),
    ),
)

DECLARATION = f"{UNIT}/streams"
SIGNALS = "tests/streams/test_command.py"
LETTERS = "tests/streams/test_dead_letters.py"
STREAMS = (
    Mutation(
        "a pipeline does not use the state of other operations",
        "streams/checkpoint_files.py",
        "        if was != is_now:\n",
        "        if False:\n",
        (f"{DECLARATION}/test_description.py::test_changes_of_inputs_and_operators_are_named",),
    ),
    Mutation(
        "a pipeline with an invalid record stops, even if a broker was unavailable, too",
        "streams/failures.py",
        '(("data", _DATA), ("program", _PROGRAM), ("retriable", _RETRIABLE))',
        '(("retriable", _RETRIABLE), ("data", _DATA), ("program", _PROGRAM))',
        (f"{DECLARATION}/test_failures.py::test_reason_of_a_failure",),
    ),
    Mutation(
        "Java starts with the collector that the user has chosen",
        "spark/collectors.py",
        '"" if _is_chosen(_environment(_OF_JAVA)) else options',
        "options",
        (f"{UNIT}/spark/test_collectors.py::test_that_of_each_java_is_kept",),
    ),
    Mutation(
        "a lost worker restarts a query even if the process that aborts its write was lost, too",
        "streams/failures.py",
        "return text_of(cause) if is_abort and isinstance(cause, Exception) else str(error)",
        "return str(error)",
        (f"{DECLARATION}/test_failures.py::test_failure_is_that_before_a_write_that_could_not_be_aborted",),
    ),
    Mutation(
        "a pipeline that makes no progress is not restarted for ever",
        "streams/running_query.py",
        "or self.restarts.are_over",
        "or False",
        ("tests/streams/test_runner.py::test_restarts_without_progress_end",),
    ),
    Mutation(
        "a stop waits for the running micro-batch",
        "streams/running_query.py",
        "    while query.isActive and time.monotonic() < deadline_s:\n",
        "    while False:\n",
        ("tests/streams/test_runner.py::test_stop_waits_for_the_end_of_a_batch",),
    ),
    Mutation(
        "the reader of a source ends with Java, also while it waits for a broker",
        "spark/worker_server.py",
        "        _end_with(0)\n",
        "        pass\n",
        ("tests/spark/test_forked_workers.py::test_reader_of_a_source_ends_with_java_although_its_launcher_lives",),
    ),
    Mutation(
        "a stop does not wait for ever for a query that Java cannot interrupt",
        "streams/runtime.py",
        '    session.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)\n',
        "",
        ("tests/streams/test_deadlines.py::test_stop_has_a_deadline_although_java_cannot_interrupt_the_query",),
    ),
    Mutation(
        "a test does not wait for ever for the records of a pipeline",
        "streams/running_query.py",
        "        thread.join(AVAILABLE_S)\n",
        "        thread.join(3_600)\n",
        ("tests/streams/test_deadlines.py::test_reading_has_a_deadline_and_the_pipeline_can_be_stopped",),
    ),
    Mutation(
        "a signal to the process group of a run leaves Java and its Python processes to the running micro-batch",
        "spark/java_start.py",
        '_PROCESS: Final = {"process_group": 0}',
        "_PROCESS: Final[dict[str, int]] = {}",
        (f"{SIGNALS}::test_signal_to_the_process_group_ends_a_run_after_its_batch_and_spark_submit_continues_it",),
    ),
    Mutation(
        "a signal to Java ends a run after the running micro-batch",
        "streams/runtime.py",
        "    with _signals(stop), java_signals.handled(spark, stop):\n",
        "    with _signals(stop):\n",
        (f"{SIGNALS}::test_signal_to_the_java_of_spark_submit_ends_a_run_after_its_batch",),
    ),
    Mutation(
        "a run whose Java was killed does not stay in the state running",
        "streams/runtime.py",
        """raise runner.fail("Spark's Java process has ended") from error""",
        "raise",
        (f"{SIGNALS}::test_killed_java_is_reported_and_nothing_survives_a_killed_driver",),
    ),
    Mutation(
        "with exactly once, an invalid record is in the transaction of the valid records of its partition",
        "streams/outputs.py",
        "if pipeline.exactly_once and query.dead_letters else None",
        "if False else None",
        (f"{LETTERS}::test_valid_and_invalid_records_of_a_partition_are_in_one_transaction",),
    ),
    Mutation(
        "with exactly once, no invalid record has a task of its own behind a shuffle",
        "streams/shared_tasks.py",
        "strict=True) if _is_output(part)] or widths)",
        "strict=True) if part] or widths)",
        (f"{LETTERS}::test_invalid_records_of_many_partitions_are_in_the_only_task",),
    ),
    Mutation(
        "a micro-batch that an older version left half written is refused if its invalid records had other tasks",
        "spark/exactly_once.py",
        "    SHARED_TASKS,\n)",
        ")",
        (f"{LETTERS}::test_batch_that_was_half_written_by_other_tasks_is_refused",),
    ),
    Mutation(
        "a key is named only if Spark gives it to the slow task",
        "streams/key_samples.py",
        'if row["task"] == slow.task)',
        "if row)",
        ("tests/streams/test_key_samples.py::test_most_frequent_key_is_that_of_the_task_that_has_it_in_spark",),
    ),
    Mutation(
        "the key of an operator behind another one is not guessed",
        "streams/operators.py",
        "            if any(_operator(*each, _is_sampled) is not None for each in below):\n",
        "            if not below:\n",
        ("tests/streams/test_key_samples.py::test_keys_behind_another_operator_are_not_known",),
    ),
    Mutation(
        "a sample of keys is cancelled at its deadline",
        "streams/slow_tasks.py",
        "        elif self._thread is not None and time.monotonic() >= self._deadline_s:\n",
        "        elif False:\n",
        (f"{DECLARATION}/test_slow_tasks.py::test_sample_has_a_deadline",),
    ),
    Mutation(
        "a key is not called skewed if its task has its share of the rows",
        "streams/skew.py",
        "if found.task_rows * slow.tasks < SKEWED_LOAD * found.rows:",
        "if found.rows < 0:",
        (f"{DECLARATION}/test_diagnosis.py::test_slow_task_is_named_with_its_key_if_it_is_known",),
    ),
    Mutation(
        "a time that Python does not have is an invalid value of a lookup",
        "streams/lookup_values.py",
        "    except ValueError as error:\n",
        "    except KeyError as error:\n",
        (f"{DECLARATION}/test_lookup_values.py::test_time_that_python_does_not_have_is_an_error_of_the_value",),
    ),
    Mutation(
        "a pipeline that runs is not reset",
        "cli/stream_reset.py",
        "        if each.is_alive(now_ms):\n",
        "        if False:\n",
        ("tests/streams/test_observing.py::test_running_pipeline_is_not_reset",),
    ),
    Mutation(
        "a repeated micro-batch moves the event time of an idle stream as the first one did",
        "spark/idle.py",
        'tasks.append(TickPartition(end[IDLE]["0"]))',
        "tasks.append(TickPartition(int(time.time())))",
        (f"{UNIT}/spark/test_idle.py::test_repeated_batch_has_the_same_time",),
    ),
    Mutation(
        "an event time far in the future does not make all later records late",
        "spark/future_times.py",
        "        if not pc.any(is_bad).as_py():\n",
        "        if True:\n",
        (
            f"{UNIT}/spark/test_future_times.py::test_record_is_named",
            f"{UNIT}/spark/test_future_times.py::test_permissive_read_has_null_and_the_bytes",
        ),
    ),
)

PLUGIN = (
    Mutation(
        "no process gets the port of a test's broker that was killed",
        "testing/ports.py",
        'reserved.bind(("0.0.0.0", 0))',
        'reserved.bind(("127.9.9.9", 0))',
        ("tests/testing/test_fixture.py::test_port_of_a_killed_broker_is_given_to_no_other_process",),
    ),
)

MUTATIONS = (
    *PLUGIN,
    *PARTITION_REPLICATION,
    *CONTROLLER,
    *WIRE,
    *BOUNDED_WORK,
    *ON_DISK,
    *CRASHES,
    *DISKS,
    *BETWEEN_BROKERS,
    *GROUPS,
    *TIME,
    *LONG,
    *SHORTAGES,
    *SETTINGS,
    *STOCK,
    *CONSUMER_GROUPS,
    *CONSUMER,
    *SHARES,
    *PRODUCER_TRANSACTIONS,
    *COORDINATED_TRANSACTIONS,
    *SPARK_EXACTLY_ONCE,
    *SPARK_TABLES,
    *STREAMS,
    *QUORUM,
    *CLUSTER,
    *MOVES,
)
