"""Rows of the table of mutations for the table source and sink, and for MariaDB's changes."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

SINK = "tests/connect/sql/test_sink.py"
SOURCE = "tests/connect/sql/test_source.py"
SQL = "connect/connectors/sql"
CAPTURE = "tests/connect/mysql/test_capture.py"
WORKER = "tests/connect/mysql/test_worker.py"
MYSQL = "connect/connectors/mysql"

ROWS: tuple[Row, ...] = (
    (
        "a table sink skips records that its offsets table has",
        f"{SQL}/sink.py",
        "            if self._offsets is not None and record.original_offset < self._offsets.next(partition):\n",
        "            if False:\n",
        (f"{SINK}::test_exactly_once_with_crashes_at_any_record[sqlite]",),
    ),
    (
        "a table sink that has lost its partition writes no rows",
        f"{SQL}/offsets.py",
        "            if changed.rowcount != 1:\n",
        "            if changed.rowcount > 1:\n",
        (f"{SINK}::test_task_without_its_partition_writes_nothing[postgres]",),
    ),
    (
        "rows and offsets of a table sink are one transaction in SQLite",
        f"{SQL}/sink.py",
        "                database.begin()\n",
        "",
        (f"{SINK}::test_task_without_its_partition_writes_nothing[sqlite]",),
    ),
    (
        "a table sink rejects only the rows that do not fit",
        f"{SQL}/writing.py",
        '            database.run("rollback to savepoint ottla_row")\n',
        "            database.rollback()\n",
        (f"{SINK}::test_record_that_does_not_fit_is_rejected_with_its_column[postgres]",),
    ),
    (
        "a batch of a table source does not end between rows of one timestamp",
        f"{SQL}/queries.py",
        "        complete = [each for each in rows if each[-1] != last]\n",
        "        complete = rows[:-1]\n",
        (f"{SOURCE}::test_every_row_of_one_timestamp_arrives_although_a_batch_is_smaller[sqlite]",),
    ),
    (
        "a table source waits for transactions that may commit earlier timestamps",
        f"{SQL}/queries.py",
        "as_datetime(self._database.now()) - self._mode.delay",
        "as_datetime(self._database.now())",
        (f"{SOURCE}::test_delay_keeps_rows_back_until_earlier_transactions_have_ended[sqlite]",),
    ),
    (
        "a table source refuses columns that may be null",
        f"{SQL}/queries.py",
        "        if columns and self._mode.strict:\n",
        "        if False:\n",
        (f"{SOURCE}::test_column_that_may_be_null_is_refused[sqlite]",),
    ),
    (
        "the changes of MariaDB go on at the row after a restart within a transaction",
        f"{MYSQL}/stream.py",
        "        first = self._resume.rows if index == self._resume.events else 0\n",
        "        first = 0\n",
        (f"{CAPTURE}::test_offset_of_each_row_goes_on_after_it",),
    ),
    (
        "a transaction of MariaDB is whole in one of Kafka with transaction.boundary=connector",
        f"{MYSQL}/task.py",
        "        if not stream.ready and not stream.in_transaction:\n            context.commit",
        "        if True:\n            context.commit",
        (f"{CAPTURE}::test_transaction_of_the_server_is_committed_as_a_whole[10]",),
    ),
    (
        "the changes of MariaDB do not repeat events of rows that were emitted",
        f"{MYSQL}/stream.py",
        "index < self._resume.events or ",
        "",
        (f"{CAPTURE}::test_transaction_goes_on_at_its_row_after_a_crash",),
    ),
    (
        "a snapshot of MariaDB ends where its stream begins",
        f"{MYSQL}/snapshot.py",
        '            cursor.execute("start transaction with consistent snapshot")\n',
        '            cursor.execute("start transaction")\n',
        (f"{CAPTURE}::test_snapshot_has_the_rows_of_its_position[minimal]",),
    ),
    (
        "a purged log of MariaDB is an error",
        f"{MYSQL}/session.py",
        "    if position.file not in sizes:\n",
        "    if False:\n",
        (f"{CAPTURE}::test_purged_log_is_an_error_or_a_new_snapshot",),
    ),
    (
        "a stream of MariaDB without names of columns is refused",
        f"{MYSQL}/catalog.py",
        "        if each.name is None:\n",
        "        if False:\n",
        (f"{CAPTURE}::test_rows_that_cannot_be_decoded_are_refused",),
    ),
    (
        "quiet tables of MariaDB let the offset advance",
        f"{MYSQL}/task.py",
        "        if not records and position != self._last and now - self._advance >= QUIET_S:\n",
        "        if False:\n",
        (f"{CAPTURE}::test_quiet_tables_let_the_offset_advance",),
    ),
    (
        "a row of MariaDB that was changed by hand is found by a comparison with its topic",
        "connect/connectors/capture/verification.py",
        "            elif own[key] != other[key]:\n",
        "            elif key not in own:\n",
        ("tests/connect/mysql/test_verification.py::test_row_that_was_changed_by_hand_is_found[false]",),
    ),
    (
        "a transaction that a crash of MariaDB has cut in its log is not emitted",
        f"{MYSQL}/stream.py",
        "        if self._context.file not in self.closed or",
        "        if True or",
        (f"{CAPTURE}::test_transaction_that_a_crash_has_cut_is_not_emitted[31]",),
    ),
    (
        "a partly emitted transaction of MariaDB that has vanished is an error",
        f"{MYSQL}/stream.py",
        "        if self._is_partial:\n",
        "        if self.in_transaction and self._is_partial:\n",
        (f"{CAPTURE}::test_partly_emitted_transaction_that_a_crash_has_removed_is_an_error",),
    ),
    (
        "the held rows of a transaction of MariaDB have a size",
        f"{MYSQL}/stream.py",
        " or self.held_bytes > MOST_HELD_BYTES\n",
        "\n",
        (f"{CAPTURE}::test_large_transaction_of_a_closed_log_is_emitted_in_parts",),
    ),
    (
        "the held rows of a transaction of MariaDB are handed out in batches",
        f"{MYSQL}/stream.py",
        "        while self._ready and len(taken) < most:\n",
        "        while self._ready:\n",
        (f"{CAPTURE}::test_large_transaction_of_a_closed_log_is_emitted_in_parts",),
    ),
    (
        "a row of an interrupted snapshot of MariaDB that was deleted since does not stay in the topic",
        f"{MYSQL}/snapshot.py",
        "        self.position = first or own\n",
        "        self.position = own\n",
        (f"{CAPTURE}::test_row_that_was_deleted_between_two_attempts_of_a_snapshot_does_not_stay",),
    ),
    (
        "a snapshot of MariaDB is in the offsets before its first row is in a topic",
        f"{MYSQL}/snapshot.py",
        "        if not self._is_marked:\n",
        "        if False:\n",
        (f"{WORKER}::test_deleted_rows_of_a_snapshot_that_died_before_the_first_interval_do_not_stay",),
    ),
    (
        "an offset without records is committed before the next poll",
        "connect/worker/source_output.py",
        "            self._flushed_at = -math.inf\n",
        "            pass\n",
        (f"{WORKER}::test_deleted_rows_of_a_snapshot_that_died_before_the_first_interval_do_not_stay",),
    ),
    (
        "the changes of MariaDB go on after the last complete transaction",
        f"{MYSQL}/stream.py",
        "        self._done = self._resume = LogPosition(self._context.file, event.packet.log_pos)\n",
        "        self._resume = LogPosition(self._context.file, event.packet.log_pos)\n",
        (f"{CAPTURE}::test_offset_of_each_row_goes_on_after_it",),
    ),
    (
        "an update of a row of MariaDB emits its new values",
        f"{MYSQL}/events.py",
        '            return [self._record("u", before, after, context)]\n',
        '            return [self._record("u", before, before, context)]\n',
        ("tests/connect/mysql/test_kills.py::test_topics_are_the_tables_after_kills",),
    ),
    (
        "a comparison that ends early does not transfer the rest of a table of MariaDB",
        f"{MYSQL}/snapshot.py",
        "        _abandon(connection, cursor)\n",
        "        cursor.close()\n",
        ("tests/connect/mysql/test_verification.py::test_rows_that_are_not_needed_are_not_transferred",),
    ),
    (
        "a table of MariaDB without a key is not read for a comparison",
        f"{MYSQL}/verification.py",
        "        if events.key_schema is None:\n            raise no_key(name)\n",
        "",
        ("tests/connect/mysql/test_verification.py::test_rows_that_are_not_needed_are_not_transferred",),
    ),
    (
        "the precision of a decimal of MariaDB is in its schema, as in Debezium's",
        f"{MYSQL}/columns.py",
        '"connect.decimal.precision": str(column.precision)',
        '"connect.decimal.precision": "0"',
        ("tests/connect/mysql/test_debezium.py::test_events_are_debeziums[mariadb]",),
    ),
    (
        "a table of MariaDB that is dropped while the tables are read does not fail the task for good",
        f"{MYSQL}/snapshot.py",
        "                if error.args[0] == ER.NO_SUCH_TABLE:\n",
        "                if False:\n",
        (f"{CAPTURE}::test_table_that_changes_while_the_tables_are_read",),
    ),
    (
        "hidden columns of MariaDB are masked",
        f"{MYSQL}/events.py",
        "        return lambda value: change(convert(value))\n",
        "        return convert\n",
        (f"{CAPTURE}::test_heartbeats_and_hidden_columns",),
    ),
)
