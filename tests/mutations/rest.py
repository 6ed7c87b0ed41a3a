"""Rows of the table of mutations for the REST proxy: users, limits, the API v2 and event streams."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

TESTS = "tests/rest"
USERS, ROBUST = f"{TESTS}/test_users.py", f"{TESTS}/test_robustness.py"
CONSUMERS, PRODUCE = f"{TESTS}/test_consumers.py", f"{TESTS}/test_produce.py"
EVENTS, SCHEMAS = f"{TESTS}/test_events.py", f"{TESTS}/test_schemas.py"
FORMATS = f"{TESTS}/test_event_formats.py"
LIMITS = "tests/unit/rest/test_limits.py"

ROWS: tuple[Row, ...] = (
    (
        "The proxy lends its own credentials to no request",
        "rest/pool.py",
        '        if settings.anonymous_as_proxy:\n            return {}\n        raise unauthorized("The request',
        '        if settings:\n            return {}\n        raise unauthorized("The request',
        (f"{USERS}::test_proxys_credentials_are_not_for_requests_without_credentials",),
    ),
    (
        "Users with different credentials do not share clients",
        "rest/pool.py",
        '            parts = ("Basic", credentials.user, credentials.password)\n',
        '            parts = ("Basic", credentials.user)\n',
        (f"{USERS}::test_password_is_checked_while_its_user_is_logged_in",),
    ),
    (
        "Credentials are checked again after a time",
        "rest/pool.py",
        'now - clients.logged_in_at >= self._settings.seconds("users_login_ms")',
        "now < clients.logged_in_at",
        (f"{USERS}::test_changed_password_takes_effect",),
    ),
    (
        "A consumer instance belongs to the user who created it",
        "rest/v2/consumers.py",
        '    return InstanceKey(call.clients.owner, call.path("group"), call.path("instance"))\n',
        '    return next(k for k in instances_of(call)._instances if k.name == call.path("instance"))\n',
        (f"{USERS}::test_instance_of_another_user_does_not_exist",),
    ),
    (
        "Wrong credentials are refused from memory for a while",
        "rest/pool.py",
        "        if error is not None and self._clock() < until:\n",
        "        if error is not None and self._clock() < 0:\n",
        (f"{USERS}::test_wrong_credentials_are_refused_from_memory",),
    ),
    (
        "The bytes of bodies in memory are limited",
        "rest/limits.py",
        "        if self.bytes + size > self._most_bytes:\n",
        "        if size < 0:\n",
        (f"{LIMITS}::test_bytes_of_bodies_count_until_release",),
    ),
    (
        "The requests of one user are limited",
        "rest/limits.py",
        "        if self.requests[user] >= self._most_of_user:\n",
        "        if self._most_of_user < 0:\n",
        (f"{LIMITS}::test_user_at_its_limit_gets_429_and_others_do_not",),
    ),
    (
        "The time of a body is limited",
        "rest/limits.py",
        "asyncio.timeout(self._limits.body_timeout_s)",
        "asyncio.timeout(None)",
        (f"{LIMITS}::test_body_that_does_not_arrive_in_time_is_408",),
    ),
    (
        "An answer acknowledges only records that the broker acknowledged",
        "rest/v2/produce.py",
        "            _, partition, offset, _ = await delivery\n",
        "            partition, offset = delivery.partition, 0\n",
        (f"{PRODUCE}::test_binary_records", f"{ROBUST}::test_killed_broker_loses_no_acknowledged_record"),
    ),
    (
        "A read commits only records that an answer had",
        "rest/v2/consumers.py",
        '        "enable.auto.offset.store": False,\n',
        "",
        (f"{CONSUMERS}::test_auto_commit_covers_answered_records",),
    ),
    (
        "An idle consumer instance ends",
        "rest/v2/instances.py",
        "            if instance.uses == 0 and now - instance.used_at >= limit_s:\n",
        "            if instance.uses == 0 and now - instance.used_at < 0:\n",
        (f"{CONSUMERS}::test_idle_instance_ends_and_leaves_its_group",),
    ),
    (
        "Integers of more than 64 bits keep their digits",
        "rest/calls.py",
        "        if _LONG_NUMBER not in body.translate(_DIGITS_AS_ZEROS):\n",
        "        if _LONG_NUMBER:\n",
        (f"{PRODUCE}::test_json_records",),
    ),
    (
        "A stream continues after the last event of its client",
        "rest/events/stream.py",
        "    offsets.update((partition, offset) for partition, offset in resumed.items() if partition in offsets)\n",
        "",
        (f"{EVENTS}::test_stream_continues_after_its_last_event",),
    ),
    (
        "A record of a stream waits until the registry answers",
        "rest/schemas/registry.py",
        "    if error.retriable:\n",
        "    if not error.retriable:\n",
        (f"{FORMATS}::test_stream_ends_where_the_registry_does_not_answer",),
    ),
    (
        "A JSON value in several lines does not end an event",
        "rest/events/rows.py",
        '        return found.replace("\\r", " ").replace("\\n", " ")\n\n    return decode',
        "        return found\n\n    return decode",
        (f"{FORMATS}::test_keys_have_a_format_of_their_own",),
    ),
    (
        "Event streams of a user are limited",
        "rest/events/stream.py",
        "        if self.of_user[owner] >= most_of_user:\n",
        "        if most_of_user < 0:\n",
        (f"{EVENTS}::test_number_of_streams_of_a_user_is_limited",),
    ),
    (
        "A slow client of a stream slows its fetches",
        "rest/events/stream.py",
        '            await send({"type": "http.response.body", "body": data, "more_body": more})\n',
        '            asyncio.create_task(send({"type": "http.response.body", "body": data, "more_body": more}))\n',
        (f"{ROBUST}::test_slow_reader_of_events_does_not_fill_the_memory",),
    ),
    (
        "The registry gets the credentials of users only by choice",
        "rest/schemas/registry.py",
        "            own = _authorization(clients) if forwards else {}\n",
        "            own = _authorization(clients)\n",
        (f"{SCHEMAS}::test_credentials_are_forwarded_only_by_choice",),
    ),
)
