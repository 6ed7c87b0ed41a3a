"""Rows of the table of mutations for several workers of Connect: their topics, their group, and who may write."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

CONFIGS = "tests/unit/connect/cluster/test_config_state.py"
ROTATED = "tests/connect/secured/test_rotated_passwords.py"
STATUSES = "tests/unit/connect/cluster/test_status_state.py"
OFFSETS = "tests/unit/connect/cluster/test_offset_records.py"
ASSIGNOR = "tests/unit/connect/cluster/test_assignor.py"
SIGNATURE = "tests/unit/connect/cluster/test_signature.py"
STORE = "tests/connect/cluster/test_store.py"
MEMBERSHIP = "tests/connect/cluster/test_membership.py"
WORKERS = "tests/connect/cluster/test_several_workers.py"

STATUS_WRITER = "tests/unit/connect/cluster/test_status_writer.py"

ROWS: tuple[Row, ...] = (
    (
        "a Connect worker does not run the connectors of another cluster from a mirror's copies",
        "connect/cluster/topics.py",
        "    if mirror is not None and is_read_only_state(mirror[1]):\n",
        "    if False:\n",
        ("tests/connect/files/test_copies.py::test_worker_moves_to_the_target_with_its_topics",),
    ),
    (
        "a worker that does not accept the certificate of another worker is a retriable error",
        "connect/peers.py",
        "(late.HTTPError, late.InvalidURL, ssl.SSLError)",
        "(late.HTTPError, late.InvalidURL)",
        ("tests/unit/network/test_broken_http.py::test_certificate_that_the_server_does_not_accept[worker-None]",),
    ),
    (
        "connect why names a dead worker while its work waits for it",
        "cli/connectors.py",
        "            faults[worker] = lost(worker, failure.problem)\n",
        "",
        ("tests/connect/cluster/test_why.py::test_a_lost_worker_is_named_while_its_work_waits_for_it",),
    ),
    (
        "the leader of a Connect group replaces an expired session key",
        "connect/cluster/membership.py",
        "        if usable and left_ms > 0:\n",
        "        if usable:\n",
        ("tests/unit/connect/cluster/test_session_keys.py::test_key_stays_until_it_expires_and_is_replaced_then",),
    ),
    (
        "a worker reads its topics again when its password or its rights are corrected",
        "connect/cluster/topic_log.py",
        "                    if not error.retriable and not isinstance(error, _DENIED):\n",
        "                    if not error.retriable:\n",
        (f"{ROTATED}::test_a_changed_password_of_the_worker_is_named_and_the_new_one_is_used",),
    ),
    (
        "a status that cannot be written is written again",
        "connect/cluster/status_writer.py",
        "    return [status] if is_passing else []\n",
        "    return []\n",
        (f"{STATUS_WRITER}::test_status_is_written_again_after_brokers_or_passwords_come_back",),
    ),
    (
        "an old status is not written again over one of another worker",
        "connect/cluster/status_writer.py",
        "if each.key not in self._waiting and each.is_current():",
        "if each.key not in self._waiting:",
        (f"{STATUS_WRITER}::test_status_is_not_written_again_after_another_worker_has_written_one",),
    ),
    (
        "Task configurations of two writes never run together in Connect",
        "connect/cluster/config_state.py",
        "            self._pending[name] = {}\n",
        "            pass\n",
        (f"{CONFIGS}::test_an_incomplete_set_is_not_completed_by_a_later_one",),
    ),
    (
        "Half-written task configurations of Connect have no effect",
        "connect/cluster/config_state.py",
        "        self._pending.setdefault(task.connector, {})[task.task] = config\n",
        (
            "        self._pending.setdefault(task.connector, {})[task.task] = config\n"
            "        known = list(self._tasks.get(task.connector, ()))\n"
            "        known[task.task : task.task + 1] = [config]\n"
            "        self._tasks[task.connector] = tuple(known)\n"
        ),
        (f"{CONFIGS}::test_half_written_tasks_have_no_effect",),
    ),
    (
        "New tasks of Connect need a fencing of the older ones",
        "connect/cluster/config_state.py",
        "        self._unfenced.add(name)\n",
        "",
        (f"{CONFIGS}::test_a_fencing_is_needed_until_the_number_of_producers_is_written_after_the_tasks",),
    ),
    (
        "The previous worker of a task does not hide in Connect that it runs elsewhere",
        "connect/cluster/status_state.py",
        "        if not is_outdated(status, self.task_status(task)):\n",
        "        if True:\n",
        (f"{STATUSES}::test_a_late_unassigned_does_not_hide_that_the_task_runs_elsewhere",),
    ),
    (
        "A failure of an earlier generation does not replace a state in Connect",
        "connect/cluster/status_state.py",
        " or known.generation <= status.generation\n",
        " or True\n",
        (
            f"{STATUSES}::test_a_worker_does_not_replace_the_state_of_a_later_generation",
            f"{STORE}::test_statuses_are_written_in_order_and_not_over_a_later_generation",
        ),
    ),
    (
        "A source position keeps the bytes of its key in Connect",
        "connect/cluster/offset_records.py",
        "        return known[0] if known is not None else key(connector, partition)\n",
        "        return key(connector, partition)\n",
        (f"{OFFSETS}::test_a_known_key_keeps_its_bytes",),
    ),
    (
        "Connect's work is not given away before its worker has stopped it",
        "connect/cluster/assignor.py",
        "    free -= _all(revoked)\n",
        "",
        (f"{ASSIGNOR}::test_work_that_two_members_have_is_stopped_by_both_first",),
    ),
    (
        "Work that two of Connect's workers have is stopped by both",
        "connect/cluster/assignor.py",
        "(work & round_.configured) - doubled",
        "(work & round_.configured)",
        (f"{ASSIGNOR}::test_work_that_two_members_have_is_stopped_by_both_first",),
    ),
    (
        "Work of a lost worker of Connect waits for it",
        "connect/cluster/assignor.py",
        "        free -= lost\n",
        "        pass\n",
        (f"{ASSIGNOR}::test_work_of_a_lost_worker_waits_for_it",),
    ),
    (
        "Internal requests of Connect need a valid signature",
        "connect/cluster/signature.py",
        "    if not hmac.compare_digest(_signature(body, key, algorithm), given):\n",
        "    if not given:\n",
        (f"{SIGNATURE}::test_other_requests_are_refused",),
    ),
    (
        "Unsigned internal requests to a worker of Connect are refused",
        "connect/cluster/membership.py",
        "            signature.check(body, headers, self._store.session_key, self._settings.keys.accepted)\n",
        "            pass\n",
        (f"{WORKERS}::test_unsigned_internal_requests_are_refused",),
    ),
    (
        "A topic that deletes old configurations of Connect is refused",
        "connect/cluster/topics.py",
        "    if policy != _COMPACT:\n",
        "    if not policy:\n",
        (f"{STORE}::test_a_topic_that_would_lose_configurations_is_refused",),
    ),
    (
        "A new leader of Connect fences the old one",
        "connect/cluster/config_writer.py",
        '                    "transactional.id": self._transactional_id,\n',
        '                    "transactional.id": f"{self._transactional_id}-{id(self)}",\n',
        (f"{STORE}::test_a_new_leader_fences_the_old_one",),
    ),
    (
        "A follower of Connect does not write for the leader",
        "connect/cluster/config_writer.py",
        "            if producer is None:\n",
        "            if producer is None:\n                await self.write_any(records)\n                return\n",
        (f"{STORE}::test_a_follower_does_not_write_for_the_leader",),
    ),
    (
        "Configurations of a leader of Connect that died within a write are not read",
        "connect/cluster/store.py",
        "self._apply_config, committed=committed)",
        "self._apply_config, committed=False)",
        (f"{STORE}::test_records_of_an_open_transaction_are_not_read",),
    ),
    (
        "A leader of Connect claims its writes again only after a rebalance",
        "connect/cluster/membership.py",
        '        store.writer.lost = lambda: self._member.rejoin("the right to write configurations was lost")\n',
        "",
        (f"{MEMBERSHIP}::test_a_leader_that_was_fenced_by_mistake_writes_again",),
    ),
    (
        "A worker that its group has removed stops its work in Connect",
        "connect/cluster/member.py",
        "                await self._lose()\n            except (ClientError, ConnectError) as error:\n",
        "            except (ClientError, ConnectError) as error:\n",
        (f"{MEMBERSHIP}::test_a_member_that_the_group_has_removed_stops_all_work",),
    ),
    (
        "A worker of Connect without its group stops after a session timeout",
        "connect/cluster/member.py",
        "if self._group.silence_ms() > self._settings.session_timeout_ms and self._state.work:\n",
        "if self._group.silence_ms() < 0:\n",
        (f"{MEMBERSHIP}::test_work_stops_when_the_group_is_not_reached_for_a_session_timeout",),
    ),
    (
        "A paused worker of Connect is fenced before its tasks run elsewhere",
        "connect/worker/source_output.py",
        '    return f"{group_id}-{connector}-{task}"\n',
        "    return f\"{group_id}-{connector}-{task}-{__import__('os').getpid()}\"\n",
        (
            f"{WORKERS}::test_a_paused_worker_writes_nothing_after_its_work_has_moved",
            f"{WORKERS}::test_chaos_loses_and_repeats_nothing",
        ),
    ),
    (
        "Offsets of a source of Connect are in the transaction of its records",
        "connect/worker/source_output.py",
        "        rows = self._offsets.rows()\n",
        "        rows = self._offsets.rows()[:1]\n",
        (f"{WORKERS}::test_work_of_a_killed_worker_moves_and_no_record_is_lost_or_repeated",),
    ),
)
