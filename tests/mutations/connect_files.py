"""Rows of the table of mutations for the connectors of files, tables, HTTP and search."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

SINK = "tests/connect/files/test_sink.py"
LINES = "tests/unit/connect/test_file_stream.py"
SOURCE = "tests/connect/files/test_source.py"
TABLES = "tests/connect/tables/test_tables.py"
HTTP = "tests/connect/http/test_http.py"
SEARCH = "tests/connect/search/test_search.py"
_FILES = "connect/connectors/files"

ROWS: tuple[Row, ...] = (
    (
        "a delayed file sink writes nothing after its successor",
        f"{_FILES}/storage.py",
        "            if (None if found is None else found[1]) != version:\n                return False\n",
        "",
        (f"{SINK}::test_delayed_task_writes_nothing_after_its_successor[local]",),
    ),
    (
        "a full disk leaves no half line of FileStreamSink",
        "connect/connectors/file_stream.py",
        "            os.ftruncate(fd, size)\n",
        "",
        (f"{LINES}::test_full_disk_leaves_no_half_line",),
    ),
    (
        "a failed write of FileStreamSink does not cut the lines of another task",
        "connect/connectors/file_stream.py",
        "            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        (f"{LINES}::test_tasks_that_share_a_file_write_one_after_the_other",),
    ),
    (
        "a file whose link is in the chain is written after a kill",
        f"{_FILES}/sink.py",
        "        if link.file and self._storage.entry(link.file) is None:\n",
        "        if False:\n",
        (f"{SINK}::test_kill_between_any_two_steps_loses_and_repeats_nothing[jsonl]",),
    ),
    (
        "a file sink continues behind its last file",
        f"{_FILES}/sink.py",
        "                self._context.seek({tp: chain.next})\n",
        "                pass\n",
        (f"{SINK}::test_kill_between_any_two_steps_loses_and_repeats_nothing[parquet]",),
    ),
    (
        "a file sink commits only offsets of durable files",
        f"{_FILES}/sink.py",
        "                durable[tp] = chain.first\n",
        "                durable[tp] = offset\n",
        (f"{SINK}::test_files_rotate_by_time",),
    ),
    (
        "records of a recreated topic are not skipped silently",
        f"{_FILES}/sink.py",
        "            elif record.original_offset < chain.start:\n",
        "            elif False:\n",
        (f"{SINK}::test_recreated_topic_stops_the_task",),
    ),
    (
        "a finished file is freed only after its last record is committed",
        f"{_FILES}/source.py",
        "or file.committed < file.position or",
        "or",
        (f"{SOURCE}::test_finished_files_are_freed_only_after_their_commit[delete]",),
    ),
    (
        "another file under an old name is not read from the old position",
        f"{_FILES}/source.py",
        'self._fingerprint(entry.key, start) == offset.get("fingerprint", 0)',
        "True",
        (f"{SOURCE}::test_another_file_under_an_old_name_is_read_from_its_beginning",),
    ),
    (
        "the last line waits for its end",
        f"{_FILES}/readers.py",
        "                return found if found and is_complete else None\n",
        "                return found or None\n",
        (f"{SOURCE}::test_lines_of_new_and_growing_files_are_read_once",),
    ),
    (
        "a commit to a table needs the offsets at which its rows begin",
        "connect/connectors/table_sink.py",
        "        if found.get(tp) != offset:\n",
        "        if False:\n",
        (
            f"{TABLES}::test_delayed_task_adds_no_rows_after_its_successor[delta]",
            f"{TABLES}::test_delayed_task_adds_no_rows_after_its_successor[iceberg]",
        ),
    ),
    (
        "an unknown outcome of a commit is decided by the table",
        "connect/connectors/table_sink.py",
        "    if all(found.get(tp) == offset for tp, offset in new.items()):\n        return True\n",
        "",
        (f"{TABLES}::test_unknown_outcome_is_decided_by_the_table[iceberg]",),
    ),
    (
        "the Iceberg sink disables the retries of its library, which skip the check of offsets",
        "connect/connectors/iceberg/sink.py",
        '_RETRIES: "0"}',
        '_RETRIES: "4"}',
        (f"{TABLES}::test_race_between_check_and_commit_is_noticed[iceberg]",),
    ),
    (
        "a table sink continues where its table ends",
        "connect/connectors/table_sink.py",
        "                self.context.seek({tp: found})\n",
        "                pass\n",
        (f"{TABLES}::test_kill_before_or_after_a_commit_loses_and_repeats_nothing[delta-1-after]",),
    ),
    (
        "an HTTP source repeats a request until all records of its response are committed",
        "connect/connectors/http/source.py",
        "[before] * (len(items) - 1)",
        "[after] * (len(items) - 1)",
        (f"{HTTP}::test_cursor_is_repeated_until_its_records_are_committed",),
    ),
    (
        "an HTTP source sends no other request before the acknowledgement",
        "connect/connectors/http/source.py",
        '        self._is_unacknowledged = bool(records and self._values["ack.url"])\n',
        "",
        (f"{HTTP}::test_acknowledgement_follows_the_commit",),
    ),
    (
        "an HTTP sink does not send accepted records again",
        "connect/connectors/http/sink.py",
        "            if record.original_offset < self._next.get(_place(record), -1):\n                continue\n",
        "",
        (f"{HTTP}::test_requests_have_keys_and_are_sent_again_only_if_they_failed",),
    ),
    (
        "no record is skipped because of a status that is not about it",
        "connect/connectors/http/client.py",
        "    return 400 <= status < 500 and status not in _NOT_OF_A_RECORD\n",
        "    return status not in (401, 403, 404)\n",
        (
            f"{HTTP}::test_status_that_is_not_about_the_record_stops_the_task_and_skips_nothing",
            f"{SEARCH}::test_document_that_a_full_or_closed_index_refuses_is_not_skipped",
        ),
    ),
    (
        "offsets of the HTTP source have no credentials",
        "connect/connectors/http/source.py",
        '{"url": without_credentials(values["url"])}',
        '{"url": values["url"]}',
        (f"{HTTP}::test_offsets_have_no_credentials_of_the_url",),
    ),
    (
        "a file without lines does not fill the memory of a worker",
        "connect/connectors/file_stream.py",
        "        if len(self._rest) > LONGEST_LINE:\n",
        "        if len(self._rest) < 0:\n",
        ("tests/unit/connect/test_file_stream.py::test_file_without_lines_does_not_fill_the_memory",),
    ),
    (
        "the next line is not glued to a half one of a killed worker",
        "connect/connectors/file_stream.py",
        '            if size and file.read(1) != b"\\n":\n',
        "            if not size:\n",
        ("tests/unit/connect/test_file_stream.py::test_half_line_of_a_killed_worker_is_ended",),
    ),
    (
        "a late record does not replace a newer document",
        "connect/connectors/search/sink.py",
        '                "version": record.original_offset,\n',
        '                "version": __import__("time").time_ns(),\n',
        (f"{SEARCH}::test_repeated_records_change_nothing_and_tombstones_delete",),
    ),
    (
        "documents that a busy server has not written are sent again",
        "connect/connectors/search/sink.py",
        "        if busy:\n",
        "        if False:\n",
        (f"{SEARCH}::test_busy_server_gets_all_records_again",),
    ),
)
