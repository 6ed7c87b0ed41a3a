"""Rows of the table of mutations for the herder of Connect and its REST API."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

CORE = "tests/unit/connect/herder/test_core.py"
HERDER = "tests/unit/connect/herder/test_herder.py"
HOSTILE = "tests/connect/rest/test_hostile_requests.py"
PLUGINS = "tests/connect/rest/test_installed_plugins.py"
STOCK = "tests/connect/rest/test_stock_settings.py"
WHY = "tests/connect/cluster/test_why.py"
POLICIES = "tests/connect/rest/test_override_policies.py"
COMMANDS = "tests/connect/rest/test_commands.py"

ROWS: tuple[Row, ...] = (
    (
        "`ottla connect why` asks the workers whether they reach their brokers",
        "cli/connectors_client.py",
        "        if status != 500:\n",
        "        if status == 500:\n",
        (f"{WHY}::test_unreachable_brokers_are_named",),
    ),
    (
        "A worker refuses settings of stock that must not be ignored",
        "connect/worker/stock_settings.py",
        "            if value and not value.startswith(_OURS):\n",
        "            if value and value.startswith(_OURS):\n",
        (f"{STOCK}::test_a_setting_that_must_not_be_ignored_is_refused_with_a_sentence",),
    ),
    (
        "A broken connector of an installed package does not hide the other plugins",
        "connect/plugins.py",
        '            logger.warning("Skipping the connector %s%s',
        '            raise\n            logger.warning("Skipping the connector %s%s',
        (f"{PLUGINS}::test_broken_connectors_of_a_package_are_logged_and_the_others_work",),
    ),
    (
        "A policy for overrides of clients refuses the settings that it does not list",
        "connect/herder/overrides.py",
        "    if policy.allowed is not None and name not in policy.allowed:\n",
        "    if policy.allowed is not None and not name:\n",
        (f"{POLICIES}::test_policies_answer_as_a_stock_worker[None]",),
    ),
    (
        "Values of variables are not written with the configurations of tasks",
        "connect/herder/core.py",
        "    return [{name: hidden.get(name, value) for name, value in each.items()} for each in configs]\n",
        "    return [{name: value for name, value in each.items() if hidden is not None} for each in configs]\n",
        (f"{CORE}::test_variables_stay_variables_in_task_configurations",),
    ),
    (
        "Values of variables are not in the answer of a validation",
        "connect/herder/herder.py",
        "            if raw is not None and secret:\n",
        "            if raw is not None and secret is None:\n",
        (f"{HERDER}::test_values_of_variables_are_not_in_the_result_of_a_validation",),
    ),
    (
        "A task of an older generation stops before its successor starts",
        "connect/herder/core.py",
        "        if number not in due or task.generation != wanted.generation or number in force.tasks\n",
        "        if number not in due or number in force.tasks\n",
        (
            f"{CORE}::test_a_round_reaches_what_is_wanted_and_a_second_one_has_nothing_to_do",
            f"{HERDER}::test_a_changed_configuration_starts_tasks_of_a_new_generation_alone",
        ),
    ),
    (
        "Older producers of an exactly-once source are fenced before its new tasks start",
        "connect/herder/herder.py",
        "        return self.environment.exactly_once and is_source and self.store.needs_fencing(name)\n",
        "        return self.environment.exactly_once and not is_source and self.store.needs_fencing(name)\n",
        (f"{HERDER}::test_older_producers_are_fenced_before_tasks_of_an_exactly_once_source_start",),
    ),
    (
        "A task that was configured again while it started does not begin to poll",
        "connect/herder/herder.py",
        "        if task not in self._work.tasks or self.store.task_generation(task.connector) != generation:\n",
        "        if task not in self._work.tasks:\n",
        (f"{HERDER}::test_a_task_that_was_configured_again_may_not_start",),
    ),
    (
        "Offsets change only while the connector is stopped and has no tasks",
        "connect/herder/herder.py",
        "        if self.store.target(name) is not TargetState.STOPPED or self.store.task_configs(name):\n",
        "        if self.store.target(name) is TargetState.STARTED:\n",
        (f"{HERDER}::test_offsets_change_only_while_the_connector_is_stopped",),
    ),
    (
        "A deleted connector leaves no states",
        "connect/herder/herder.py",
        "        if self.store.config(name) is not None:\n            self.store.put_status(",
        "        if name:\n            self.store.put_status(",
        (f"{HERDER}::test_a_deleted_connector_leaves_nothing",),
    ),
    (
        "A restart starts only the parts that the request covers",
        "connect/herder/core.py",
        "        if request.include_tasks and (not request.only_failed or state is State.FAILED)\n",
        "        if request.include_tasks and state\n",
        (
            f"{CORE}::test_a_restart_covers_what_the_request_names",
            f"{HERDER}::test_a_restart_starts_what_the_request_covers",
        ),
    ),
    (
        "Requests of other workers need a signature",
        "connect/rest/internal.py",
        "    call.herder.membership.check_signature(call.request.body, call.request.headers)\n    rows = ",
        "    rows = ",
        (f"{HOSTILE}::test_internal_requests_need_a_signature",),
    ),
    (
        "Deeply nested JSON in a request is refused",
        "connect/rest/requests.py",
        "        except (ValueError, RecursionError) as error:\n",
        "        except ValueError as error:\n",
        (f"{HOSTILE}::test_deep_broken_and_long_bodies_are_answered",),
    ),
    (
        "Secrets of a configuration are not printed",
        "cli/connectors.py",
        "is_secret=has_secret_name(name)",
        "is_secret=False",
        (f"{COMMANDS}::test_a_connector_is_created_observed_and_deleted",),
    ),
)
