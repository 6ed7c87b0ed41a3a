"""`ottla connect why`: the state of a connector in sentences. `sentences` is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.common import units

_WAITING: Final = ("waits for", "waits_for")


class Sentence(NamedTuple):
    """A sentence, and whether it is a problem."""

    text: str
    is_problem: bool = False


def last_error(trace: str) -> str:
    """Return the last line of a trace that names an error."""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    # Java's traces begin with the error and its causes; Python's end with it.
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    return lines[0] if any(line.startswith("at ") for line in lines) else lines[-1]


def sentences(
    status: Mapping[str, Any],
    reports: Mapping[int, Mapping[str, Any]],
    config: Mapping[str, Any],
    now_ms: int,
    faults: Mapping[str, str] = {},
) -> list[Sentence]:
    """Explain the state of a connector and its tasks. `reports`: from its workers, by task; `faults`: by worker."""
    name, connector, tasks = status["name"], status["connector"], status["tasks"]
    found = list(_of_connector(name, connector, tasks, config))
    for task in tasks:
        found += _of_task(name, task, reports.get(task["id"], {}), now_ms)
    running = sum(
        task["state"] == "RUNNING" and not task.get("trace") and not reports.get(task["id"], {}).get("error")
        for task in tasks
    )
    if tasks and running == len(tasks) and connector["state"] == "RUNNING" and not faults:
        found.insert(0, Sentence(f"{name} runs: {units.plural(len(tasks), 'task')} on {_workers(tasks)}."))
    return [*found, *(Sentence(text, True) for text in faults.values())]


def lost(worker: str, problem: str) -> str:
    """Explain a worker of the status that does not answer."""
    return (
        f"The worker {worker} does not answer ({problem}): what it ran may have stopped. Start it again, or wait until "
        "the group gives its work to another worker, after scheduled.rebalance.max.delay.ms (5 minutes by default)."
    )


def unhealthy(worker: str, problem: str) -> str:
    """Explain a worker that does not reach its brokers."""
    return (
        f"The worker {worker} does not reach its brokers: {problem.rstrip('.')}. Check that the brokers run, and the "
        "bootstrap.servers and the credentials of the worker."
    )


def _workers(tasks: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted({task["worker_id"] for task in tasks}))


def _of_connector(
    name: str, connector: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> list[Sentence]:  # fmt: skip
    state, worker = connector["state"], connector["worker_id"]
    if state == "PAUSED":
        return [Sentence(f"{name} is paused: an operator asked for it. `ottla connect resume {name}` goes on.")]
    if state == "STOPPED":
        advice = f"Its offsets can be changed; `ottla connect resume {name}` goes on."
        return [Sentence(f"{name} is stopped: an operator asked for it. {advice}")]
    if state == "FAILED":
        return [
            Sentence(f"{name} failed on worker {worker}: {last_error(connector.get('trace', ''))}", True),
            Sentence(f"`ottla connect restart {name} --tasks` starts it again when the cause is removed."),
        ]
    if state == "UNASSIGNED":
        return [Sentence(f"No worker runs {name} at this moment: its last one was {worker}. The group divides the "
                         "work again soon; after the loss of a worker that takes scheduled.rebalance.max.delay.ms.",
                         True)]  # fmt: skip
    if state == "RESTARTING":
        return [Sentence(f"{name} restarts on worker {worker}.")]
    if not tasks:
        most = config.get("tasks.max", "1")
        return [Sentence(f"{name} runs on worker {worker} without tasks: it has found nothing to do yet, or its tasks "
                         f"start now (tasks.max is {most}).", True)]  # fmt: skip
    return []


def _of_task(name: str, task: Mapping[str, Any], report: Mapping[str, Any], now_ms: int) -> list[Sentence]:
    number, state, worker = task["id"], task["state"], task["worker_id"]
    error = last_error(task.get("trace", ""))
    label = f"Task {number}"
    if state == "FAILED":
        return [
            Sentence(f"{label} failed on worker {worker}: {error}", True),
            Sentence(
                f"`ottla connect restart {name} --tasks --only-failed` starts it again when the cause is removed."
            ),
        ]
    if state == "UNASSIGNED":
        return [Sentence(f"{label} runs on no worker at this moment; its last one was {worker}.", True)]
    found = [] if state == "RUNNING" else [Sentence(f"{label} is {state.lower()} on worker {worker}.")]
    error = (error or report.get("error") or "").rstrip(".")
    if error:
        tried = report.get("tried") or 0
        times = f" It was tried {units.plural(tried, 'time')}." if tried else ""
        found.append(Sentence(f"{label} could not go on: {error}.{times}{_next(report, now_ms)}", True))
    elif report.get("waits_for"):
        found.append(Sentence(f"{label}: {report['waits_for']}"))
    facts = {key: value for key, value in (report.get("facts") or {}).items() if key not in _WAITING}
    if facts:
        text = "; ".join(f"{key}: {_shown(value)}" for key, value in facts.items())
        found.append(Sentence(f"{label} reports {text}."))
    return found


def _next(report: Mapping[str, Any], now_ms: int) -> str:
    at = report.get("next_try_ms")
    return "" if at is None else f" The next try is in {units.duration(max(0, int(at) - now_ms))}."


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return units.count(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    return str(value)
