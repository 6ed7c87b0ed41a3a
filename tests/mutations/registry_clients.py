"""Rows of the table of mutations for clients of schema registries and their serializers."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

REQUESTS = "tests/unit/registry_client/test_requests.py"
SETTINGS = "tests/unit/registry_client/test_settings.py"
SERIALIZERS = "tests/unit/clients/serializers/test_serializers.py"
COLUMNS = "tests/unit/clients/serializers/test_avro_columns.py"
REGISTRIES = "tests/unit/streams/test_registries.py"
TLS = "tests/contracts/test_tls_registry.py"
SPARK = "tests/unit/spark/test_registry_formats.py"
ALL_COLUMNS = "tests/unit/clients/serializers/test_columns.py"
CLIENTS = "tests/registry/test_serializers.py"

ROWS: tuple[Row, ...] = (
    (
        "A registry that does not accept the certificate of a client is unreachable",
        "registry_client/transport.py",
        "(httpx.HTTPError, httpx.InvalidURL, ssl.SSLError)",
        "(httpx.HTTPError, httpx.InvalidURL)",
        (
            "tests/unit/network/test_broken_http.py::test_certificate_that_the_server_does_not_accept[asyncio_registry_client-None]",
        ),
    ),
    (
        "Offsets in a transaction report the reader schema of their consumer",
        "clients/producer/base.py",
        "row if row.metadata else OffsetAndMetadata(row.offset, row.leader_epoch, report)",
        "row",
        ("tests/cli/test_schema.py::test_offsets_in_transactions_have_the_report_of_their_consumer",),
    ),
    (
        "Share groups that read the topic of a schema are named, as they cannot be checked",
        "tools/schema_readers.py",
        "        if listing.type is GroupType.SHARE and any(\n",
        "        if False and any(\n",
        ("tests/cli/test_schema.py::test_share_groups_that_read_the_topic_are_named",),
    ),
    (
        "A call to a registry ends at its deadline",
        "registry_client/requests.py",
        "                if remaining <= 0:\n",
        "                if remaining <= -1e9:\n",
        (f"{REQUESTS}::test_deadline_ends_retries_and_bounds_each_timeout",),
    ),
    (
        "An error of a registry that no retry changes is raised at once",
        "registry_client/requests.py",
        "outcome.status not in RETRIABLE_STATUSES:",
        "outcome.status < 300:",
        (f"{REQUESTS}::test_an_error_of_the_registry_is_not_retried",),
    ),
    (
        "The next address of a registry is tried after a failure",
        "registry_client/requests.py",
        "                self._first = (self._first + 1) % len(self._settings.urls)\n",
        "",
        (f"{REQUESTS}::test_second_address_answers_when_the_first_fails_and_stays_the_first_choice",),
    ),
    (
        "Ids of another context are not taken from the cache",
        "registry_client/operations.py",
        '        key = ("id", context_of(subject), schema_id, fmt)\n',
        '        key = ("id", ".", schema_id, fmt)\n',
        (f"{REQUESTS}::test_ids_are_cached_for_each_context",),
    ),
    (
        "A secret of the registry is not shown in an error",
        "registry_client/settings.py",
        '        shown = f"a {type(value).__name__}" if row.sensitive else repr(value)\n',
        "        shown = repr(value)\n",
        (f"{SETTINGS}::test_wrong_settings_are_named_and_secrets_are_not_shown",),
    ),
    (
        "A record whose schema cannot be loaded is read again",
        "clients/consumer/interface.py",
        "        first = len(made) if made or failed.retriable else 1\n",
        "        first = len(made) if made else 1\n",
        (f"{CLIENTS}::test_unreachable_registry_loses_no_record",),
    ),
    (
        "A record whose schema cannot be loaded is not skipped",
        "clients/consumer/deserializers.py",
        "                if not self._skip or _is_retriable(error):\n",
        "                if not self._skip:\n",
        (f"{CLIENTS}::test_unreachable_registry_is_not_skipped",),
    ),
    (
        "Rows of an Arrow batch whose schema cannot be loaded are read again",
        "clients/consumer/interface.py",
        "        first = len(decoded) if len(decoded) or failed.retriable else 1\n",
        "        first = len(decoded) if len(decoded) else 1\n",
        (f"{CLIENTS}::test_unreachable_registry_loses_no_row_of_an_arrow_batch",),
    ),
    (
        "Rows of an Arrow batch after an invalid value are read again",
        "clients/consumer/arrow.py",
        "        if first < start + count:\n",
        "        if first < start:\n",
        (f"{CLIENTS}::test_bad_value_in_an_arrow_batch_is_raised_once_between_the_others",),
    ),
    (
        "Requests of asyncio clients do not block their event loop",
        "clients/serializers/base.py",
        "        if not self.is_deferring:\n",
        "        if True:\n",
        (f"{SERIALIZERS}::test_asyncio_clients_load_schemas_outside_of_the_call",),
    ),
    (
        "A poll of an asyncio client with several records of an unknown schema ends",
        "clients/serializers/base.py",
        "        if failure is not None and time.monotonic() < failure[1]:\n",
        "        if failure is not None:\n            del self._failures[key]\n",
        (f"{CLIENTS}::test_asyncio_consumer_skips_several_records_of_an_unknown_schema",),
    ),
    (
        "A poll that is cancelled while it waits for a schema loses no record",
        "clients/consumer/interface.py",
        "            self._client.change(lambda core: core.fetch.delivery.give_back(records))\n            raise\n",
        "            raise\n",
        (f"{CLIENTS}::test_poll_that_is_cancelled_while_it_waits_for_a_schema_loses_no_record[ottla-poll]",),
    ),
    (
        "Values of several schema ids keep their order in a column",
        "clients/serializers/registry_columns.py",
        ".take(pc.sort_indices(pa.concat_arrays(places)))",
        "",
        (f"{COLUMNS}::test_several_schema_ids_are_resolved_to_the_latest_version_in_their_order",),
    ),
    (
        "A column has one type, also if its first values are invalid",
        "clients/serializers/registry_columns.py",
        "        parts = [part if part.type == kind else pa.nulls(len(part), kind) for part in parts]\n",
        "",
        (f"{ALL_COLUMNS}::test_invalid_values_before_the_first_message",),
    ),
    (
        "A message of another type is not read as the column's",
        "clients/serializers/protobuf_columns.py",
        "        if name != self._message:\n",
        "        if name is None:\n",
        (f"{ALL_COLUMNS}::test_message_at_another_place_of_its_file",),
    ),
    (
        "A JSON value that its schema refuses is not in a column",
        "clients/serializers/json_columns.py",
        "            if refused:\n",
        "            if refused is None:\n",
        (f"{ALL_COLUMNS}::test_invalid_json_has_row_field_and_reason",),
    ),
    (
        "A JSON Schema that contains itself is refused, not followed without end",
        "serde/json_schema.py",
        "        if place in outer:\n",
        "        if place is None:\n",
        ("tests/unit/serde/test_json_schema.py::test_schemas_without_a_layout",),
    ),
    (
        "Spark's sink writes the path of a Protobuf message",
        "spark/registry_writing.py",
        "prefix=prefix + path)",
        "prefix=prefix + bytes(bool(path) - 1))",
        (f"{SPARK}::test_latest_version_decides_the_type_of_written_values",),
    ),
    (
        "Spark's sink validates JSON values with a schema that it did not derive",
        "spark/write_encodings.py",
        "            if self.check:\n",
        "            if not self.check:\n",
        (f"{SPARK}::test_latest_version_decides_the_type_of_written_values",),
    ),
    (
        "A schema of another type than the option's is an error",
        "spark/registry.py",
        "    if wanted not in (None, schema.type):\n",
        "    if wanted is schema:\n",
        (f"{SPARK}::test_latest_version_decides_the_type_of_written_values",),
    ),
    (
        "A registry gets no credentials of another one",
        "streams/registries.py",
        '    return {URL: os.environ.get("OTTLA_REGISTRY") or LOCAL} if found is None else found.options()\n',
        "    return {n: v for each in reversed(chosen) if each is not None for n, v in each.options().items()}\n",
        (f"{REGISTRIES}::test_first_registry_wins_and_no_setting_reaches_another_one",),
    ),
    (
        "Declarations do not show the settings of a registry",
        "streams/registries.py",
        "    settings: tuple[tuple[str, str], ...] = field(repr=False)\n",
        "    settings: tuple[tuple[str, str], ...] = field()\n",
        (f"{REGISTRIES}::test_pipeline_has_a_registry",),
    ),
    (
        "A broker verifies the certificate of its registry",
        "network/tls_settings.py",
        '    context.check_hostname = algorithm == "https"\n',
        "    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE\n",
        (f"{TLS}::test_broker_sends_no_token_to_a_registry_that_it_does_not_trust",),
    ),
    (
        "The validator of JSON values opens no address",
        "clients/serializers/json_schema.py",
        "            retriever=_refuse,\n",
        "",
        (f"{SERIALIZERS}::test_address_in_a_json_schema_is_not_opened",),
    ),
)
