"""Rows of the table of mutations for the worker of Connect."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

KILLS = "tests/connect/worker/test_kills.py"
ERRORS = "tests/connect/worker/test_errors.py"
FENCING = "tests/connect/worker/test_standalone_fencing.py"
FILES = "tests/connect/worker/test_files.py"
ROTATED = "tests/connect/secured/test_rotated_passwords.py"
UNIT = "tests/unit/connect/worker"
PROVIDERS = f"{UNIT}/test_providers.py"
BOUNDARIES = "tests/connect/worker/test_transaction_boundaries.py"
VALIDATED = "tests/unit/connect/herder/test_transaction_boundaries.py"
UNIT_BOUNDARIES = "tests/unit/connect/worker/test_transaction_boundaries.py"
JSON = "tests/unit/connect/worker/test_json_converter.py"

ROWS: tuple[Row, ...] = (
    (
        "a connector's user need not create the worker's topic of offsets",
        "connect/worker/offset_store.py",
        "            if self.topic != worker.offsets_topic:\n",
        "            if self.topic:\n",
        ("tests/connect/secured/test_secured_workers.py::test_connectors_log_in_as_other_users_by_overrides",),
    ),
    (
        "each user of the brokers reads source offsets with its own rights",
        "connect/worker/offset_store.py",
        "        key = clients.reader(), topic\n",
        "        key = frozenset[tuple[str, str]](), topic\n",
        (f"{UNIT}/test_offset_stores.py::test_each_user_has_a_store",),
    ),
    (
        "a task is shown as paused after its last put, and a failed one stays failed",
        "connect/worker/runtime.py",
        "            running.control.pause(paused=target is not TargetState.STARTED)\n            return\n",
        (
            "            running.control.pause(paused=target is not TargetState.STARTED)\n"
            "            running.shows(paused=running.control.paused)\n"
            "            return\n"
        ),
        (
            f"{ERRORS}::test_paused_sink_puts_nothing_after_its_state_says_so",
            f"{ERRORS}::test_target_state_does_not_hide_a_failure",
        ),
    ),
    (
        "a put that waits for its next try says so after a pause",
        "connect/worker/sink.py",
        'self._retry[1] if self._pending else ""',
        "PAUSED",
        (f"{ERRORS}::test_put_that_waits_says_so_again_after_a_pause",),
    ),
    (
        "credentials from variables are read again for each connection",
        "network/sasl_settings.py",
        "        if not changing:\n            return first()\n",
        "        if first:\n            return first()\n",
        (f"{PROVIDERS}::test_credentials_are_read_again_for_each_connection_and_stay_hidden",),
    ),
    (
        "later values of credentials are secrets, too",
        "connect/worker/providers.py",
        "sorted(self._values | later, key=len, reverse=True)",
        "sorted(self._values, key=len, reverse=True)",
        (f"{PROVIDERS}::test_credentials_are_read_again_for_each_connection_and_stay_hidden",),
    ),
    (
        "a task waits for credentials that can change",
        "connect/worker/failures.py",
        "    if rereads and isinstance(error, AuthenticationFailed):\n",
        "    if rereads and isinstance(error, ConnectionError):\n",
        (f"{ROTATED}::test_a_changed_password_of_a_connector_is_named_and_the_new_one_is_used",),
    ),
    (
        "a trace fits into the record of a status",
        "connect/worker/failures.py",
        "    if len(text) <= MAX_TRACE:\n",
        "    if len(text) <= 1 << 30:\n",
        (f"{UNIT}/test_task_thread.py::test_trace_fits_into_a_record",),
    ),
    (
        "an error of an operation shows no secret of its causes",
        "connect/worker/failures.py",
        "    raise made from None\n",
        "    raise error\n",
        (f"{UNIT}/test_task_thread.py::test_error_for_a_user_shows_no_secret_of_its_causes",),
    ),
    (
        "operations of connectors that hang are limited",
        "connect/worker/runtime.py",
        "        if len(self._operations) >= MOST_OPERATIONS:\n",
        "        if len(self._operations) >= 1 << 30:\n",
        (f"{UNIT}/test_operations.py::test_calls_that_hang_are_limited_and_delay_neither_others_nor_the_stop",),
    ),
    (
        "the log of a failed record has no secrets",
        "connect/worker/tolerance.py",
        "            self._hide(str(failure.error)) if self.settings.logs_records else",
        "            str(failure.error) if self.settings.logs_records else",
        (f"{UNIT}/test_tolerance.py::test_log_of_a_failed_record_shows_no_secret",),
    ),
    (
        "the report of a task has no secrets",
        "connect/worker/task_thread.py",
        "return self.control.report(self._secrets.hide)",
        "return self.control.report(str)",
        ("tests/unit/connect/worker/test_task_thread.py::test_report_of_a_task_shows_no_secret",),
    ),
    (
        "a task that runs again after a failure is not explained as healthy before it has succeeded",
        "cli/connectors_why.py",
        'error or report.get("error") or ""',
        'error or ""',
        ("tests/connect/rest/test_why.py::test_a_task_that_runs_again_still_names_its_last_failure",),
    ),
    (
        "a task that is resumed between two tries is not shown as paused",
        "connect/worker/task_thread.py",
        "        if was_paused and not control.stopping:\n",
        "        if False:\n",
        ("tests/unit/connect/worker/test_task_thread.py::test_task_that_is_resumed_between_two_tries_restarts",),
    ),
    (
        "a task that is paused while it waits for its next try does not try again",
        "connect/worker/task_thread.py",
        "        while control.paused and not control.stopping:\n",
        "        while control.paused and control.stopping:\n",
        (f"{ERRORS}::test_task_that_is_paused_between_two_tries_waits_for_resume",),
    ),
    (
        "a standalone worker fences the tasks that an earlier run had beyond its own",
        "connect/worker/fencing.py",
        "    return [each.transactional_id for each in listed if pattern.fullmatch(each.transactional_id)]\n",
        "    return [each.transactional_id for each in listed if each.transactional_id == str(pattern)]\n",
        (f"{FENCING}::test_open_transactions_of_tasks_that_are_not_there_any_more_are_aborted",),
    ),
    (
        "records of an exactly-once source and their offsets are in one transaction",
        "connect/worker/source_output.py",
        "        self._begin()  # offsets of an aborted transaction\n",
        "        producer.commit_transaction()\n        producer.begin_transaction()\n",
        (f"{KILLS}::test_exactly_once_source_killed_at_each_step[after offsets]",),
    ),
    (
        "a transaction that the connector defines does not end with a poll",
        "connect/worker/source_output.py",
        "        if self._requested is None:\n            self._send(records)\n",
        "        if True:\n            self._send(records)\n",
        (f"{BOUNDARIES}::test_transactions_of_the_connector_are_whole_and_written_once[after commit]",),
    ),
    (
        "a transaction that the connector aborts is discarded",
        "connect/worker/source_output.py",
        "                self._abort()\n",
        "",
        (f"{BOUNDARIES}::test_aborted_transaction_is_discarded_and_not_read_again",),
    ),
    (
        "the offsets of a transaction that the connector aborts are committed at once",
        "connect/worker/source_output.py",
        "                self._abort()\n                self._end()\n",
        "                self._abort()\n",
        (f"{BOUNDARIES}::test_aborted_transaction_is_discarded_and_not_read_again",),
    ),
    (
        "a paused task leaves no transaction open",
        "connect/worker/source.py",
        "                if output.is_open:\n",
        "                if False:\n",
        (f"{BOUNDARIES}::test_pause_and_stop_commit_no_part_of_a_transaction",),
    ),
    (
        "a transaction that the connector does not end stops its task before the broker aborts it",
        "connect/worker/source_output.py",
        "            self._check_age()\n",
        "",
        (f"{BOUNDARIES}::test_transaction_that_the_connector_does_not_end_stops_the_task",),
    ),
    (
        "a connector that defines no transactions is refused with transaction.boundary=connector",
        "connect/worker/source.py",
        "        if found is not TransactionBoundaries.SUPPORTED:\n",
        "        if False:\n",
        ("tests/connect/worker/test_offsets.py::test_connector_that_defines_no_boundaries_cannot_have_the_setting",),
    ),
    (
        "validation refuses transaction.boundary=connector for connectors that define no transactions",
        "connect/herder/validation.py",
        "            if found is not TransactionBoundaries.SUPPORTED:\n",
        "            if found is TransactionBoundaries.SUPPORTED:\n",
        (f"{VALIDATED}::test_boundaries_of_the_connector_are_accepted_if_it_defines_them",),
    ),
    (
        "requests for ends of transactions have a limit",
        "connect/worker/transaction_boundaries.py",
        "        if len(self._at) > MOST_AWAITED:\n",
        "        if False:\n",
        (f"{UNIT_BOUNDARIES}::test_requests_for_records_that_are_never_returned_have_a_limit",),
    ),
    (
        "a source goes on at the offsets of its last transaction",
        "connect/worker/source.py",
        "                store.refresh()\n",
        "                pass\n",
        (
            f"{KILLS}::test_exactly_once_source_killed_at_each_step[after commit]",
            f"{FILES}::test_lines_arrive_once_across_a_restart[enabled]",
        ),
    ),
    (
        "a source task of an older generation does not start again",
        "connect/worker/runtime.py",
        "        asked.result(_CHECK_S)\n",
        "        del asked\n",
        (f"{KILLS}::test_zombie_task_is_fenced_and_writes_nothing",),
    ),
    (
        "a sink flushes before its offsets are committed",
        "connect/worker/sink.py",
        "        returned = self._task.flush(current)\n",
        "        returned = current\n",
        (f"{KILLS}::test_lines_are_on_disk_before_their_offsets_are_committed",),
    ),
    (
        "a sink with offsets of its own goes on at them",
        "connect/function_tasks.py",
        "        self._context.seek({tp: offset for tp, offset in found.items() if offset is not None})\n",
        "        del found\n",
        (f"{KILLS}::test_sink_killed_at_each_step[once-after put]",),
    ),
    (
        "a dead letter is durable before the offset of its record is committed",
        "connect/worker/sink.py",
        "            self._letters.flush()\n",
        "            pass\n",
        (f"{ERRORS}::test_dead_letter_is_durable_before_its_offset_is_committed",),
    ),
    (
        "records that a sink could not write are put again",
        "connect/worker/sink.py",
        "        self._pending, self._pending_ends, self._put_tries = (), {}, 0\n        self._control.succeeded()\n",
        "        self._put_tries = 0\n        self._control.succeeded()\n",
        (f"{ERRORS}::test_paused_tasks_process_nothing",),
    ),
    (
        "a failure that passes skips no record of a sink",
        "connect/worker/conversion.py",
        "            return self._tolerance.repeat(lambda: self.convert(raw), error)\n",
        "            return None\n",
        (f"{ERRORS}::test_failure_that_passes_skips_no_record",),
    ),
    (
        "the values of variables are in no trace",
        "connect/worker/failures.py",
        '    text = secrets.hide(f"{head}\\n{stack}")\n',
        '    text = f"{head}\\n{stack}"\n',
        (f"{ERRORS}::test_secrets_are_in_no_trace",),
    ),
    (
        "a record that is not tolerated stops its task",
        "connect/worker/tolerance.py",
        "        if not self.settings.tolerates:\n",
        "        if False:\n",
        (f"{ERRORS}::test_untolerated_record_stops_the_task_and_is_named",),
    ),
    (
        "JsonConverter writes no number that its schema does not have",
        "connect/converters/json_structs.py",
        '            condition = f"type({name}) is int and {-limit} <= {name} < {limit}"\n',
        '            condition = f"type({name}) is int"\n',
        (f"{JSON}::test_value_that_does_not_fit_names_its_field",),
    ),
    (
        "JsonConverter reads no field beside schema and payload after a known beginning",
        "connect/converters/json.py",
        '                    payload = loads(data[len(beginning) : data.rindex(b"}")], exact=reader.exact)\n',
        '                    payload = loads(data[len(beginning) :].split(b",")[0].rstrip(b"}"), exact=reader.exact)\n',
        (f"{JSON}::test_wrong_envelope_is_refused_also_after_a_good_one",),
    ),
)
