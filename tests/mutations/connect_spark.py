"""Rows of the table of mutations for connectors that are Spark queries."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

FORMATS, FUNCTIONS = "tests/connect/spark/test_formats.py", "tests/connect/spark/test_functions.py"
HERE = "connect/spark"

ROWS: tuple[Row, ...] = (
    (
        "A new query writes no table of files that another one has written",
        f"{HERE}/queries.py",
        "        if log is not None and not self.has_checkpoint and self._exists(log):\n",
        "        if log is not None and not self.has_checkpoint and not log:\n",
        (f"{FORMATS}::test_new_query_does_not_write_where_another_one_has",),
    ),
    (
        "A source whose checkpoint is lost does not write everything again",
        f"{HERE}/mirror.py",
        "        if not has_checkpoint and self.read() is not None:\n",
        "        if not has_checkpoint and self.read() is None and not checkpoint:\n",
        (f"{FORMATS}::test_lost_checkpoint_of_a_source_is_an_error_until_its_offsets_are_reset",),
    ),
    (
        "A table is not read again after a finished pass",
        f"{HERE}/passes.py",
        '        self._mirror.write({"passes": passes + 1, "ended ms": units.now_ms()})\n',
        '        self._mirror.write({"passes": passes + 1, "ended ms": units.now_ms(), "pass": identity + "x"})\n',
        (f"{FORMATS}::test_table_is_read_once_by_a_pass_and_again_after_a_reset",),
    ),
    (
        "A sink that stops commits the offsets of written records",
        f"{HERE}/life.py",
        "        queries.commit(self._report)\n",
        "",
        (f"{FUNCTIONS}::test_sink_gets_the_same_records_in_both_runtimes",),
    ),
    (
        "A sink on Spark skips records that the other system has",
        f"{HERE}/function_sink.py",
        "            if each.offset >= self._starts.get(tp, 0):\n",
        "            if each.offset >= 0:\n",
        (f"{FUNCTIONS}::test_sink_with_resume_gets_only_records_that_it_does_not_have",),
    ),
    (
        "An invalid record is a data error with its place",
        f"{HERE}/failures.py",
        '    for wanted in ("DataError", "RetriableError"):\n',
        '    for wanted in ("RetriableError",):\n',
        (f"{FUNCTIONS}::test_invalid_record_of_a_function_sink_stops_the_task_with_its_place",),
    ),
)
