"""Rows of the table of mutations for schema validation."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

UNIT = "tests/unit/broker/contracts"
IDS, LETTERS = f"{UNIT}/test_contracts.py", f"{UNIT}/test_dead_letters.py"
COMBINATIONS = f"{UNIT}/test_combinations.py"
SEEDS = "tests/simulation/test_validated_topics.py::test_validated_topic_keeps_its_promises"
WHOLE, TRANSACTIONS = f"{UNIT}/test_whole_records.py", f"{UNIT}/test_transactional_producers.py"
SOURCE = f"{UNIT}/test_source.py"
PRODUCERS = "tests/contracts/test_producers.py"
AVRO = "tests/unit/serde/test_avro_checks.py"

ROWS: tuple[Row, ...] = (
    (
        "a topic with schema validation accepts no record without a schema id",
        "broker/contracts/violations.py",
        "            if schema_id == UNFRAMED:\n",
        "            if schema_id == UNFRAMED:\n                continue\n            if schema_id == UNFRAMED:\n",
        (f"{IDS}::test_batch_with_an_invalid_record_is_refused_as_a_whole[0]",),
    ),
    (
        "a schema id must be registered under the subject of its topic",
        "broker/contracts/schemas.py",
        "        return known if rule.subject(known.record_name) in known.subjects else None",
        "        return known",
        (f"{IDS}::test_id_must_be_registered_under_the_subject_of_the_topic",),
    ),
    (
        "a batch for a topic with schema validation is not appended before its check",
        "broker/handlers/produce.py",
        "            if partition.settings.rules.contract is not None:\n",
        "            if False:\n",
        (f"{IDS}::test_batch_with_an_invalid_record_is_refused_as_a_whole[0]",),
    ),
    (
        "a copy of another cluster's topic with schema validation accepts no records of clients",
        "broker/contracted_batches.py",
        "    _check_refusal(partition)\n    partition.check_open()\n",
        "    partition.check_open()\n",
        (f"{COMBINATIONS}::test_copy_refuses_writes_before_the_registry_is_asked",),
    ),
    (
        "a batch that waited for the schema registry is not appended to a topic that became a copy",
        "broker/contracted_batches.py",
        "    _check_refusal(partition)\n    is_verified",
        "    is_verified",
        (f"{COMBINATIONS}::test_topic_that_became_read_only_while_a_batch_waited_does_not_get_it",),
    ),
    (
        "a batch that waits for the schema registry is a copy of its frame",
        "broker/contracted_batches.py",
        "    data.records = memoryview(bytearray(records))\n    response",
        "    data.records = records\n    response",
        (f"{IDS}::test_frame_of_a_waiting_request_may_be_overwritten",),
    ),
    (
        "a compressed batch is decompressed and read before it is appended to a topic with schema validation",
        "broker/contracts/violations.py",
        "    data, start, end = uncompressed(batch, header, rules)\n",
        "    if header.is_compressed:\n        return []\n    data, start, end = uncompressed(batch, header, rules)\n",
        (f"{IDS}::test_compressed_batch_with_malformed_records_is_refused",),
    ),
    (
        "requests that need the same schema id share one request to the registry",
        "broker/contracts/schemas.py",
        "        if fetch is None:\n",
        "        if True:\n",
        (f"{IDS}::test_request_with_an_unknown_id_waits_and_the_others_do_not",),
    ),
    (
        "a schema id that does not exist is not asked for in each request",
        "broker/contracts/schemas.py",
        "            self._missing[schema_id, rule] = self._clock.monotonic_ms() + MISSING_MS",
        "            self._missing[schema_id, rule] = 0",
        (f"{IDS}::test_missing_id_is_asked_for_once_in_a_while",),
    ),
    (
        "a batch with many unknown schema ids does not wait without end",
        "broker/contracts/schemas.py",
        "        if now_ms >= deadline_ms:\n",
        "        if False:\n",
        (f"{IDS}::test_batch_with_many_unknown_ids_has_a_deadline",),
    ),
    (
        "a resent batch is acknowledged without another check of its schemas",
        "broker/contracts/contracts.py",
        "        if contract is None or _is_repeated(partition, header, batch):",
        "        if contract is None:",
        (
            f"{IDS}::test_resent_batch_is_acknowledged_even_if_its_schema_was_deleted",
            f"{LETTERS}::test_resent_batch_is_not_diverted_twice",
            f"{LETTERS}::test_batch_out_of_order_is_not_diverted",
        ),
    ),
    (
        "dead letters are committed before the rest of their batch is appended",
        "broker/contracts/dead_letters.py",
        "        yield from result_of(_within(node, durable, timeout_ms))\n",
        "        pass\n",
        (f"{LETTERS}::test_acknowledgement_waits_until_dead_letters_are_committed", SEEDS),
    ),
    (
        "an error of the dead letter topic refuses the batch",
        "broker/contracts/dead_letters.py",
        "        if error is not None:\n",
        "        if False:\n",
        (
            f"{LETTERS}::test_error_of_the_leader_refuses_the_batch",
            "tests/contracts/test_clusters.py::test_acknowledged_records_outlast_the_leader[bad]",
            SEEDS,
        ),
    ),
    (
        "two topics with schema validation do not send each other their dead letters",
        "broker/contracts/dead_letters.py",
        '    if values["confluent.key.schema.validation"] or values["confluent.value.schema.validation"]:',
        "    if False:",
        (f"{LETTERS}::test_dead_letter_topic_must_not_validate_schemas",),
    ),
    (
        "a batch without its invalid records keeps its sequence numbers, even if no record is left",
        "broker/contracts/contracts.py",
        "    return memoryview(encode_empty_batch(header) if rest is None else rest)",
        "    return batch if rest is None else memoryview(rest)",
        (f"{LETTERS}::test_batch_without_valid_records_is_appended_empty",),
    ),
    (
        "dead letters do not exceed the largest batch of their topic",
        "broker/contracts/dead_letters.py",
        "        if size >= _BATCH_BYTES:\n",
        "        if False:\n",
        (f"{LETTERS}::test_many_dead_letters_are_several_batches",),
    ),
    (
        "the mode dlq needs a dead letter topic",
        "config/checks.py",
        "    if not dead_letters:\n",
        "    if False:\n",
        (f"{LETTERS}::test_mode_dlq_needs_a_topic",),
    ),
    (
        "internal topics cannot have schema validation",
        "config/checks.py",
        "    if (keys or values) and topic in INTERNAL_TOPICS:\n",
        "    if False:\n",
        (f"{LETTERS}::test_internal_topics_cannot_be_validated",),
    ),
    (
        "a transactional batch that waited for the schema registry is verified when it is appended",
        "broker/contracted_batches.py",
        "    is_verified = order.verification is not None and order.verification.check(partition)\n    header",
        "    is_verified = True\n    header",
        (f"{TRANSACTIONS}::test_batch_that_waits_until_its_transaction_has_ended_is_refused",),
    ),
    (
        "a record that waited for its schema is appended only if the registry has it",
        "broker/contracts/violations.py",
        "            if known is None:\n",
        "            if known is None and schema_id < 0:\n",
        (SEEDS,),
    ),
    (
        "records are not appended without a check while the registry does not answer",
        "broker/contracts/contracts.py",
        "            if contract.mode != WARN or error.code",
        "            if error.code",
        (SEEDS,),
    ),
    (
        "a batch that waited is not appended to another topic with the name of its own",
        "broker/contracted_batches.py",
        "        if partition.topic_id != waited_for:\n",
        "        if False:\n",
        (f"{COMBINATIONS}::test_batch_that_waited_is_not_appended_to_another_topic_with_the_name",),
    ),
    (
        "a batch that waited while another broker led its partition is appended if this one leads it again",
        "broker/contracted_batches.py",
        "    if partition.closed:\n        waited_for",
        "    if False:\n        waited_for",
        (f"{COMBINATIONS}::test_broker_that_leads_again_when_the_registry_answers_appends_the_batch",),
    ),
    (
        "a user who may not write a topic with schema validation writes no dead letters through it",
        "broker/handlers/produce.py",
        "        return [failure(data.index, refusal, None) for data in rows]\n",
        "        pass\n",
        (f"{COMBINATIONS}::test_user_who_may_not_write_the_topic_writes_no_dead_letter",),
    ),
    (
        "a record with its schema id in a header is refused with the setting to change",
        "broker/contracts/violations.py",
        "    if _HEADERS.search(records) is None:\n",
        "    if True:\n",
        (f"{COMBINATIONS}::test_schema_id_in_a_header_is_refused_with_the_setting_to_change",),
    ),
    (
        "a JSON Schema cannot make the broker read other addresses or files",
        "broker/contracts/checks.py",
        ", offline=True",
        "",
        (f"{WHOLE}::test_schema_cannot_make_the_broker_read_other_places[file:///etc/hostname]",),
    ),
    (
        "a large batch is checked in slices",
        "broker/contracts/violations.py",
        "        if first:\n            yield\n",
        "        if first < 0:\n            yield\n",
        (f"{WHOLE}::test_large_batch_is_checked_in_slices",),
    ),
    (
        "a value of a recursive Avro type cannot exhaust the stack",
        "serde/_avro.py",
        "        if self.depth >= MOST_NESTED:\n",
        "        if self.depth >= 400:\n",
        (f"{AVRO}::test_recursive_types_are_checked_to_a_depth",),
    ),
    (
        "no bytes may follow a checked Avro value",
        "serde/_avro.py",
        "        if fits and reader.at != reader.end:\n",
        "        if False:\n",
        (f"{AVRO}::test_values_written_by_fastavro_are_valid_and_longer_ones_are_not[plain]",),
    ),
    (
        "a check of Avro values reads nothing outside of its data",
        "serde/_avro.py",
        "        if reader.at < skip or reader.at > reader.end or reader.end > data.size:\n",
        "        if False:\n",
        (f"{AVRO}::test_places_outside_of_the_data_are_an_error[places1-plain]",),
    ),
    (
        "records with ids that the registry cannot be asked for get a retriable error",
        "broker/contracts/source.py",
        "    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)",
        "    return KafkaError(ErrorCode.INVALID_RECORD, text)",
        ("tests/contracts/test_producers.py::test_registry_that_is_down_refuses_only_unknown_ids_and_producers_retry",),
    ),
    (
        "a registry that does not answer fails the request at its deadline",
        "broker/contracts/source.py",
        "            async with asyncio.timeout(self._timeout_s):\n",
        "            async with asyncio.timeout(None):\n",
        (f"{SOURCE}::test_registry_that_does_not_answer_is_a_retriable_error",),
    ),
)
