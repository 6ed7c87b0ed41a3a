"""Rows of the table of mutations for the PostgreSQL connector."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

HERE = "connect/connectors/postgres"
SNAPSHOT, STREAM = "tests/connect/postgres/test_snapshot.py", "tests/connect/postgres/test_stream.py"
UNIT = "tests/unit/connect/postgres"

LOST, PROTOCOL = "tests/connect/postgres/test_lost_server.py", "tests/connect/postgres/test_protocol.py"

ROWS: tuple[Row, ...] = (
    (
        "A server of PostgreSQL that is lost before a query of the catalog is an error that passes",
        f"{HERE}/catalog.py",
        'with errors(self._options, "read the catalog"):',
        "if True:",
        (f"{LOST}::test_lost_server_is_an_error_that_passes",),
    ),
    (
        "A query of PostgreSQL that fails after some rows is not a short table",
        f"{HERE}/copying.py",
        "        if result.status != pq.ExecStatus.COMMAND_OK:\n",
        "        if False:\n",
        (f"{PROTOCOL}::test_query_that_fails_after_some_rows_is_an_error",),
    ),
    (
        "A query of a table of PostgreSQL that is refused is not repeated",
        f"{HERE}/copying.py",
        "        if result.status != pq.ExecStatus.COPY_OUT:\n",
        "        if False:\n",
        (f"{PROTOCOL}::test_query_that_is_refused_is_an_error_that_does_not_pass",),
    ),
    (
        "A keepalive of PostgreSQL is answered",
        f"{HERE}/replication.py",
        "        if wanted:\n",
        "        if False:\n",
        (f"{PROTOCOL}::test_keepalive_of_the_server_is_answered",),
    ),
    (
        "A slot of PostgreSQL that its previous reader still uses is taken over",
        f"{HERE}/replication.py",
        '            if " is active for PID " not in reason or time',
        "            if True or time",
        (f"{PROTOCOL}::test_slot_that_its_previous_reader_still_uses_is_taken_over",),
    ),
    (
        "The PostgreSQL connector emits a change once, although the snapshot has seen it",
        f"{HERE}/stream.py",
        "        if name in self._now.hidden:\n            return\n",
        "",
        (f"{SNAPSHOT}::test_snapshot_and_stream_meet_exactly",),
    ),
    (
        "All connections of a snapshot of PostgreSQL see one moment",
        f"{HERE}/snapshots.py",
        "            connection.execute(f\"set transaction snapshot '{self._snapshot}'\")\n",
        "            connection.execute('select pg_sleep(0.05)')\n",
        (f"{SNAPSHOT}::test_snapshot_and_stream_meet_exactly",),
    ),
    (
        "A transaction of PostgreSQL goes on in its middle",
        f"{HERE}/stream.py",
        "            return\n        emit = before >= self._now.resume\n        if self._counter is not None:\n",
        "            return\n        emit = before >= 0\n        if self._counter is not None:\n",
        (f"{STREAM}::test_transaction_goes_on_in_its_middle_after_a_crash",),
    ),
    (
        "A transaction of PostgreSQL is whole in one of Kafka with transaction.boundary=connector",
        f"{HERE}/task.py",
        "        if not stream.in_transaction:\n            context.commit_transaction()\n",
        "        if True:\n            context.commit_transaction()\n",
        (f"{STREAM}::test_transaction_of_the_database_is_committed_as_a_whole[10]",),
    ),
    (
        "Tables that a snapshot of PostgreSQL has completed are not read again",
        f"{HERE}/task.py",
        " and each.full_name not in done",
        "",
        (f"{SNAPSHOT}::test_interrupted_snapshot_goes_on_with_the_tables_that_are_missing",),
    ),
    (
        "A row of an interrupted snapshot of PostgreSQL that was deleted since does not stay in the topic",
        f"{HERE}/reading.py",
        "            borders.add(self._earlier.first or self.visible, self._done)\n",
        "            borders.add(self.visible, self._done)\n",
        (f"{SNAPSHOT}::test_row_that_was_deleted_between_two_attempts_does_not_stay",),
    ),
    (
        "A slot of PostgreSQL that is ahead of the offset has lost changes",
        f"{HERE}/slots.py",
        '        if strategy == "trust_offset":\n',
        '        if strategy == "":\n',
        (f"{SNAPSHOT}::test_slot_ahead_of_the_offset_is_an_error",),
    ),
    (
        "A missing slot of PostgreSQL is not created again behind the offset",
        f"{HERE}/task.py",
        "                raise ConnectError(_slot_is_missing(options, slot))\n            logger.warning(",
        "            logger.warning(",
        (f"{SNAPSHOT}::test_lost_slot_is_an_error_or_a_new_snapshot",),
    ),
    (
        "A slot of PostgreSQL advances on quiet tables",
        f"{HERE}/task.py",
        "        if quiet:\n",
        "        if False:\n",
        (f"{STREAM}::test_quiet_table_lets_the_slot_advance",),
    ),
    (
        "A slot of PostgreSQL that holds too much of the log stops the task",
        f"{HERE}/task.py",
        "        if most and slot.lag > most:\n",
        "        if most and slot.lag < 0:\n",
        (f"{STREAM}::test_slot_lag_beyond_the_limit_stops_the_task",),
    ),
    (
        "A row of an incremental snapshot of PostgreSQL is not older than its predecessor",
        f"{HERE}/incremental.py",
        "                chunk.rows.pop(_key_texts(events, values), None)\n",
        "                pass\n",
        ("tests/connect/postgres/test_incremental.py::test_newer_change_drops_the_row_of_the_chunk",),
    ),
    (
        "Transaction numbers of PostgreSQL wrap around",
        f"{HERE}/visibility.py",
        "        if full >= self.xmax + _HALF:\n            full -= _CYCLE\n",
        "        if full >= self.xmax + _CYCLE:\n            full -= _CYCLE\n",
        (f"{UNIT}/test_texts.py::test_visibility_of_transactions",),
    ),
    (
        "A cut message of pgoutput is an error",
        f"{HERE}/pgoutput.py",
        '    if position > len(data):\n        raise DecodingError("a value without its end")\n',
        "",
        (f"{UNIT}/test_pgoutput.py::test_cut_rows_are_an_error",),
    ),
    (
        "Text that Java escapes in its own way is not written by the fast JSON of PostgreSQL rows",
        f"{HERE}/fast_json.py",
        '    if "\\\\u00" in found:  # Java writes these in upper case\n        raise NotPlainError\n',
        "",
        ("tests/connect/postgres/test_fast_json.py::test_bytes_are_the_converters",),
    ),
)
