"""Rows of the table of mutations for the API v3 of the REST proxy."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

RECORDS = "tests/rest/v3/test_records.py"
CHANGES = "tests/rest/v3/test_changes.py"

ROWS: tuple[Row, ...] = (
    (
        "A record of a stream has a limit of its size",
        "rest/v3/json_stream.py",
        "        if size > self._limit_bytes:\n",
        "        if size < 0:\n",
        (
            "tests/unit/rest/v3/test_json_stream.py::test_limit_is_for_one_object",
            f"{RECORDS}::test_stream_may_be_larger_than_the_limit_of_a_body",
        ),
    ),
    (
        "A record that the brokers refuse is not acknowledged by v3",
        "rest/v3/records.py",
        "        return _error(of_client(error))\n    answer",
        "        return {'error_code': 200}\n    answer",
        (f"{RECORDS}::test_record_that_the_brokers_refuse_is_an_error",),
    ),
    (
        "A user who got rights can write, however earlier records failed",
        "rest/pool.py",
        "        if self._producer is not None and self._producer.failure is not None:\n",
        "        if self._producer is not None and self._stopped:\n",
        (f"{RECORDS}::test_user_who_got_rights_can_write",),
    ),
    (
        "Two entries of a batch have different ids",
        "rest/v3/records.py",
        "    if len(set(ids)) < len(ids):\n",
        "    if not ids:\n",
        (f"{RECORDS}::test_wrong_batch_writes_nothing",),
    ),
    (
        "ACLs are not deleted without a filter",
        "rest/v3/acls.py",
        'call.request.query_params, "UNKNOWN",',
        'call.request.query_params, "ANY",',
        (f"{CHANGES}::test_deletion_without_a_filter_is_refused",),
    ),
    (
        "Requests for another cluster are refused",
        "rest/v3/resources.py",
        "    if wanted is not None and wanted != cluster.cluster_id:\n",
        "    if wanted == '':\n",
        ("tests/rest/v3/test_resources.py::test_other_cluster_is_404",),
    ),
    (
        "A slash in the name of a group does not separate segments of the path",
        "rest/server.py",
        '        if b"%2f" in raw.lower():\n',
        "        if False:\n",
        ("tests/rest/v3/test_resources.py::test_group_has_members_assignments_and_lag",),
    ),
    (
        "A name with a slash does not lift the limit of a body",
        "rest/v3/routes.py",
        ' and not scope["raw_path"].lower().endswith(b"%2frecords")',
        "",
        ("tests/rest/v3/test_resources.py::test_slash_in_a_name_does_not_lift_the_limit_of_bodies",),
    ),
)
