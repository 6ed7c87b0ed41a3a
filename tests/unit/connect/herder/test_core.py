"""The herder's decisions: rounds of any order of changes end with exactly what the store and the assignment want."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.connect.herder.core import (
    Force,
    Plan,
    RestartRequest,
    Running,
    RunningTask,
    Wanted,
    has_variable,
    needs_task_write,
    patched,
    plan,
    restarted,
    with_variables,
)
from ottla.connect.runtime import State, TargetState

CONFIGS = st.sampled_from([{"a": "1"}, {"a": "2"}])
TARGETS = st.sampled_from(list(TargetState))
WANTED = st.none() | st.builds(Wanted, CONFIGS, TARGETS, st.integers(0, 3), st.integers(1, 3))
RUNNING = st.builds(
    Running,
    st.none() | CONFIGS,
    TARGETS,
    st.dictionaries(st.integers(0, 4), st.builds(RunningTask, st.integers(1, 3), TARGETS)),
)
FORCE = st.builds(Force, st.booleans(), st.frozensets(st.integers(0, 4)))


def execute(steps: Plan, wanted: Wanted | None, running: Running) -> None:
    """Do what a round does, with a runtime that always succeeds."""
    for each in steps.stop_tasks:
        del running.tasks[each]
    if steps.stop_connector:
        assert running.config is not None
        running.config = None
    if steps.start_connector:
        assert wanted is not None
        running.config, running.target = wanted.config, wanted.target
    for each in steps.start_tasks:
        assert wanted is not None
        running.tasks[each] = RunningTask(wanted.generation, wanted.target)


def older() -> Running:
    """A connector with a task of an older generation."""
    return Running({"a": "1"}, TargetState.STARTED, {0: RunningTask(1, TargetState.STARTED)})


@given(WANTED, RUNNING, st.booleans(), st.sets(st.integers(0, 4)), FORCE)
@example(Wanted({"a": "1"}, TargetState.STARTED, 1, 2), older(), True, {0}, Force())
def test_a_round_reaches_what_is_wanted_and_a_second_one_has_nothing_to_do(
    wanted: Wanted | None, running: Running, has_connector: bool, mine: set[int], force: Force
) -> None:
    steps = plan(wanted, running, has_connector=has_connector, my_tasks=mine, force=force)
    execute(steps, wanted, running)
    if wanted is None:
        assert running.is_empty
    else:
        assert (running.config == wanted.config) if has_connector else running.config is None
        due = set() if wanted.target is TargetState.STOPPED else {each for each in mine if each < wanted.tasks}
        assert running.tasks == {each: RunningTask(wanted.generation, wanted.target) for each in due}
    assert plan(wanted, running, has_connector=has_connector, my_tasks=mine).is_empty


@given(WANTED, RUNNING, st.booleans(), st.sets(st.integers(0, 4)), FORCE)
def test_a_task_of_another_generation_stops_before_it_starts(
    wanted: Wanted | None, running: Running, has_connector: bool, mine: set[int], force: Force
) -> None:
    steps = plan(wanted, running, has_connector=has_connector, my_tasks=mine, force=force)
    for each in steps.start_tasks:
        assert wanted is not None
        before = running.tasks.get(each)
        if before is not None and (before.generation != wanted.generation or each in force.tasks):
            assert each in steps.stop_tasks


def test_only_a_connector_that_starts_or_resumes_is_asked_for_tasks() -> None:
    for target in TargetState:
        wanted = Wanted({"a": "1"}, target, 1, 1)
        steps = plan(wanted, Running(), has_connector=True, my_tasks=[])
        assert steps.start_connector
        assert steps.ask_tasks == (target is TargetState.STARTED)
    same = Running({"a": "1"}, TargetState.STARTED)
    assert not plan(Wanted({"a": "1"}, TargetState.STARTED, 1, 1), same, has_connector=True, my_tasks=[]).ask_tasks


def test_a_restart_covers_what_the_request_names() -> None:
    tasks = {0: State.FAILED, 1: State.RUNNING}
    failed = RestartRequest("c", only_failed=True, include_tasks=True)
    assert restarted(failed, State.RUNNING, tasks) == Force(False, frozenset({0}))
    assert restarted(failed, State.FAILED, {}) == Force(True)
    both = RestartRequest("c", include_tasks=True)
    assert restarted(both, State.RUNNING, tasks) == Force(True, frozenset({0, 1}))
    assert restarted(RestartRequest("c", only_failed=True), State.RUNNING, tasks) == Force()
    assert restarted(both, None, tasks) == Force(False, frozenset({0, 1}))


def test_variables_stay_variables_in_task_configurations() -> None:
    raw = {"password": "${env:SECRET}", "user": "me"}
    resolved = {"password": "hunter2", "user": "me", "table": "t"}
    assert with_variables(raw, [resolved]) == [{"password": "${env:SECRET}", "user": "me", "table": "t"}]
    assert has_variable("x${file:/a/b:c}y")
    assert not has_variable("${}")


def test_a_patch_removes_settings_that_are_null() -> None:
    assert patched({"a": "1", "b": "2"}, {"b": None, "c": "3"}) == {"a": "1", "c": "3"}


def test_tasks_are_written_again_if_only_the_configuration_of_the_connector_changed() -> None:
    assert not needs_task_write([{"x": "1"}], [{"x": "1"}], {"a": "1"}, {"a": "1"})
    assert needs_task_write([{"x": "1"}], [{"x": "1"}], {"a": "2"}, {"a": "1"})
    assert needs_task_write([{"x": "1"}], [], {"a": "1"}, {"a": "1"})
