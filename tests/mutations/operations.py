"""Rows of the table of mutations for the operator tools."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

SKIP = "tests/cli/test_group_skip.py"
WHY = "tests/cluster/test_why.py"
CHECK = "tests/cli/test_check.py"
CAUSES = "tests/unit/tools/test_cluster_causes.py"
BALANCE = "tests/cluster/test_balance.py"
BALANCE_PLAN = "tests/unit/tools/test_balance.py"

ROWS: tuple[Row, ...] = (
    (
        "an installation of the service does not overwrite the administrator's settings",
        "tools/service_files.py",
        "        if file.is_settings and path.exists():\n",
        "        if False:\n",
        ("tests/unit/tools/test_service_files.py::test_installation_is_repeatable_and_keeps_settings_and_data",),
    ),
    (
        "a node whose stop would take the quorum's majority waits",
        "tools/health.py",
        "    if len(current - {facts.node}) < needed:\n",
        "    if False:\n",
        ("tests/unit/tools/test_health.py::test_voter_stops_only_if_the_others_are_a_majority",),
    ),
    (
        "a node that is neither an unfenced broker nor a voter has no permission to stop",
        "tools/health.py",
        "    if known and not _is_voter(facts):\n",
        "    if False:\n",
        ("tests/unit/tools/test_health.py::test_node_without_partitions_stops_only_as_a_voter_that_the_quorum_spares",),
    ),
    (
        "a node does not stop while the quorum is not known",
        "tools/health.py",
        '        yield "the metadata quorum is not known"\n',
        "",
        ("tests/unit/tools/test_health.py::test_node_does_not_stop_without_knowing_the_quorum",),
    ),
    (
        "replicas that the user cannot describe are not taken for absent ones",
        "tools/health.py",
        "    if hidden := sorted(stored - facts.partitions.keys()):\n",
        "    if hidden := []:\n",
        ("tests/unit/tools/test_health.py::test_node_with_replicas_that_the_user_cannot_describe_must_not_stop",),
    ),
    (
        "readiness does not depend on the active controller",
        "cli/health.py",
        '            if options.level == "stop":\n',
        "            if True:\n",
        ("tests/unit/cli/test_health.py::test_only_stop_asks_the_controller",),
    ),
    (
        "a node whose stop would make a partition unwritable waits",
        "tools/health.py",
        "        if len(each.isr) < len(each.replicas):\n            behind.append(name)\n",
        "",
        ("tests/unit/tools/test_health.py::test_node_with_replicas_out_of_sync_is_catching_up_and_must_not_stop",),
    ),
    (
        "the health check of a container does not speak plaintext to a secured listener",
        "launch/container.py",
        "    if plain:\n",
        "    if True:\n",
        ("tests/unit/launch/test_container.py::test_health_check_connects_to_a_controllers_listener",),
    ),
    (
        "the removal of the service outlasts the stop of its broker",
        "cli/service.py",
        "_DEADLINE_S = 180.0\n",
        "_DEADLINE_S = 60.0\n",
        ("tests/unit/cli/test_service.py::test_removal_waits_longer_than_systemd_waits_for_the_broker_to_stop",),
    ),
    (
        "passwords in the settings of a container are for its user only",
        "launch/container.py",
        "os.O_TRUNC, 0o600)",
        "os.O_TRUNC, 0o644)",
        ("tests/unit/launch/test_container.py::test_mounted_file_comes_first_and_the_defaults_only_without_both",),
    ),
    (
        "a cluster that may lose acknowledged records is not ready for production",
        "tools/readiness.py",
        "        elif least == 1 and topic.replication_factor >= REPLICAS:\n",
        "        elif False:\n",
        ("tests/cli/test_check.py::test_each_fault_is_named_with_a_repair",),
    ),
    (
        "a broker that does not answer does not hold up the explanation of a cluster",
        "tools/why/cluster_samples.py",
        "    except api.PartialFailure as failure:\n        return dict(failure.results), dict(failure.errors)\n",
        "    except ZeroDivisionError as failure:\n        raise AssertionError from failure\n",
        (f"{WHY}::test_followers_that_are_throttled_slow_or_silent_differ",),
    ),
    (
        "a check whose input could not be read is not ok",
        "tools/readiness.py",
        "        if code in missing:\n",
        "        if False:\n",
        (
            f"{CHECK}::test_check_without_its_input_is_unknown_and_never_ok",
            f"{CHECK}::test_user_that_may_not_read_settings_gets_no_ok",
        ),
    ),
    (
        "a check fails while security or unclean elections are unknown",
        "tools/readiness.py",
        " or not _BLOCKING.isdisjoint(unknown_checks(facts))\n",
        "\n",
        (f"{CHECK}::test_unknown_security_or_unclean_elections_fail_like_a_critical_check",),
    ),
    (
        "a broker that refuses a user is not explained as a broker that hangs",
        "tools/why/cluster_samples.py",
        " if isinstance(error, _NO_ANSWER)}\n",
        "}\n",
        (f"{CHECK}::test_user_that_may_not_read_settings_gets_no_ok",),
    ),
    (
        "a controller that refuses a user is not explained as a quorum without a majority",
        "tools/why/cluster_causes.py",
        ' and seen.last.unanswered >= {"quorum", "moves"}:\n',
        ":\n",
        (
            f"{CAUSES}::test_controller_that_refuses_a_user_is_not_missing",
            f"{CHECK}::test_user_that_may_not_read_settings_gets_no_ok",
        ),
    ),
    (
        "min.insync.replicas above the replication factor is not explained as failing writes",
        "tools/why/cluster_causes.py",
        " < min(least, len(each.at.replicas)):\n",
        " < least:\n",
        (f"{CAUSES}::test_topic_with_fewer_replicas_than_min_insync_replicas_is_written",),
    ),
    (
        "a plan does not reduce the racks of a partition",
        "tools/admin/balance.py",
        "            if len({self.racks[node_id] for node_id in nodes}) <",
        "            if 0 * len({self.racks[node_id] for node_id in nodes}) >",
        (f"{BALANCE_PLAN}::test_replicas_stay_in_different_racks", f"{BALANCE_PLAN}::test_properties_of_every_plan"),
    ),
    (
        "a plan does not put two replicas of a partition on one broker",
        "tools/admin/balance.py",
        "for _, each in rows if sink not in self.now[each])",
        "for _, each in rows)",
        (f"{BALANCE_PLAN}::test_properties_of_every_plan",),
    ),
    (
        "a plan copies no more bytes than allowed",
        "tools/admin/balance.py",
        "        if self.most_bytes is not None and self.copied + self._cost(step) > self.most_bytes:\n",
        "        if False:\n",
        (f"{BALANCE_PLAN}::test_properties_of_every_plan",),
    ),
    (
        "a balance that was killed is continued with its moves and its throttle",
        "cli/cluster_balance.py",
        "        balance_run.save(measured.cluster_id, run)\n",
        "",
        (f"{BALANCE}::test_killed_run_is_continued_under_load_and_loses_nothing",),
    ),
    (
        "a balance keeps the replication limits of others",
        "tools/admin/throttle.py",
        "                earlier = throttle.previous[node_id][name]\n",
        "                earlier = None\n",
        (f"{BALANCE}::test_interrupt_completes_the_moves_that_have_started",),
    ),
    (
        "a skip does not move a group back that was moved meanwhile",
        "tools/group_skip.py",
        "        check_position(skip, read_position(admin, skip), position)\n",
        "",
        (f"{SKIP}::test_position_that_moves_meanwhile_is_not_moved_back[ottla]",),
    ),
    (
        "a skip copies the record that it names",
        "tools/group_skip.py",
        "    if record.offset != skip.offset:\n",
        "    if False:\n",
        (f"{SKIP}::test_gap_at_the_position_is_skipped_with_the_next_record[ottla]",),
    ),
    (
        "a second skip has its own audit",
        "tools/group_skip.py",
        "    if not metadata or metadata.startswith(_MARK):\n",
        "    if not metadata:\n",
        (f"{SKIP}::test_second_skip_has_its_own_audit[ottla]",),
    ),
    (
        "a skip that was done is not done again",
        "tools/group_skip.py",
        '    return at.metadata.startswith(f"{_MARK}{skip.offset} ")\n',
        "    return False\n",
        (f"{SKIP}::test_killed_skip_is_repeated_without_a_second_letter[ottla-after the end]",),
    ),
    (
        "a skip and its dead letter are one transaction",
        "tools/group_skip.py",
        "        producer.send_offsets_to_transaction({skip.partition: next_offset}, GroupMetadata(skip.group))\n",
        (
            "        producer.commit_transaction()\n"
            "        producer.begin_transaction()\n"
            "        producer.send_offsets_to_transaction({skip.partition: next_offset}, GroupMetadata(skip.group))\n"
        ),
        (f"{SKIP}::test_killed_skip_is_repeated_without_a_second_letter[ottla-after the offset]",),
    ),
    (
        "a group with members does not skip",
        "tools/group_skip.py",
        "    if described.members:\n",
        "    if False:\n",
        (f"{SKIP}::test_members_and_other_positions_are_refused[ottla]",),
    ),
)
