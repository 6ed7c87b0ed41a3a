"""Divides the outputs of a pipeline into Spark queries, and checks them before one starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pickle import PickleError
from typing import Final

from pyspark.sql import SparkSession

from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.streams.declarations import Output, Pipeline, Table
from ottla.streams.description import Description, QueryDescription, describe_inputs, output_line
from ottla.streams.errors import StreamsError, TemporaryError
from ottla.streams.failures import classify, text_of
from ottla.streams.inputs import Inputs, read_inputs
from ottla.streams.loops import Ends, loops
from ottla.streams.operators import AGGREGATE, PROCESSOR, STATE_FUNCTION, Operators, check_supported, operators_of
from ottla.streams.outputs import Query, shape
from ottla.streams.pickling import reason_of, without_traces
from ottla.streams.settings import Settings

_END: Final = re.compile(r"(?: SQLSTATE: \w+)?;?$")
"""The end of Spark's message, before a plan."""


@dataclass(frozen=True)
class Plan:
    """The queries of a pipeline."""

    pipeline: Pipeline
    queries: tuple[Query, ...]
    description: Description


def make_plan(spark: SparkSession, pipeline: Pipeline, settings: Settings) -> Plan:
    """Call the function of a pipeline and plan its queries. Connects to no broker.

    The problems of the outputs are in the description. Raises StreamsError for wrong inputs and for operations that
    Spark rejects, and other exceptions of the function.
    """
    with _errors_of(pipeline):
        return _make_plan(spark, pipeline, settings)


def _make_plan(spark: SparkSession, pipeline: Pipeline, settings: Settings) -> Plan:
    inputs = read_inputs(spark, pipeline, settings, pipeline.name)
    outputs = _outputs(pipeline, inputs)
    operators = {output.topic: operators_of(output.rows) for output in outputs}
    problems = [problem for output in outputs for problem in _problems(output, operators[output.topic])]
    if settings.once:
        problems += [
            f"to({output.topic!r}): a processor with processing time has no end: run it without once"
            for output in outputs
            if operators[output.topic].has_clock
        ]
    divided = _divide(spark, pipeline, settings, outputs)
    divided[0] = replace(divided[0], dead_letters=inputs.dead_letters)
    queries = [_with_operators(query, operators) for query in divided]
    return Plan(pipeline, tuple(queries), _description(pipeline, outputs, queries, problems))


def _divide(spark: SparkSession, pipeline: Pipeline, settings: Settings, outputs: tuple[Output, ...]) -> list[Query]:
    """Return the queries for outputs: one for all whose rows are final, and one for each with updates.

    Spark allows one output mode in a query, and one aggregate in the mode update.
    """
    final = tuple(output for output in outputs if output.mode != "updates")
    queries = [Query(pipeline.name, "append", final)] if final else []
    for output in outputs:
        if output.mode != "updates":
            continue
        if not queries:
            queries.append(Query(pipeline.name, "update", (output,)))
            continue
        name = f"{pipeline.name}.{output.topic}"
        # A second query commits its offsets to a group of its own, so it reads the inputs itself.
        own = _outputs(pipeline, read_inputs(spark, pipeline, settings, name))
        queries.append(Query(name, "update", tuple(each for each in own if each.topic == output.topic)))
    return queries


def _with_operators(query: Query, operators: Mapping[str, Operators]) -> Query:
    """Add what the plans of its outputs do; `operators` are by topic."""
    found = [operators[output.topic] for output in query.outputs]
    return replace(
        query,
        operators=tuple(operator for each in found for operator in each.stateful),
        has_clock=any(each.has_clock for each in found),
    )


def _outputs(pipeline: Pipeline, inputs: Inputs) -> tuple[Output, ...]:
    with without_traces():
        return pipeline.outputs(**inputs.rows)


@contextmanager
def _errors_of(pipeline: Pipeline) -> Iterator[None]:
    """Raise errors from Spark and from declarations as StreamsError, with the name of the pipeline."""
    name = f"Pipeline {pipeline.name!r}"
    try:
        yield
    except StreamsError as error:
        problems = [each if each.startswith(name) else f"{name}: {each}" for each in error.problems]
        raise type(error)(*problems) from error
    except PickleError as error:
        raise StreamsError(f"{name}: {reason_of(error)}") from error
    except SPARK_ERRORS as error:
        if (failure := classify(text_of(error))).is_retriable:
            raise TemporaryError(f"{name}: {failure.reason}") from error
        raise StreamsError(f"{name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the message of a Spark exception, without the plan."""
    return _END.sub("", text_of(error).strip().splitlines()[0])


def with_loops(plans: Sequence[Plan]) -> list[Plan]:
    """Add the loops of pipelines that run together to their problems."""
    found = list(loops([_ends(each) for each in plans]))
    added = {name: [text for of, text in found if of == name] for name, _ in found}
    return [
        replace(
            each,
            description=replace(
                each.description, problems=[*each.description.problems, *added.get(each.pipeline.name, ())]
            ),
        )
        for each in plans
    ]


def _ends(plan: Plan) -> Ends:
    pipeline = plan.pipeline
    return Ends(
        pipeline.name,
        frozenset(each.topic for each in pipeline.streams.values()),
        frozenset(each.topic for each in pipeline.inputs.values() if isinstance(each, Table)),
        frozenset(topic for query in plan.description.queries for topic in query.topics),
        pipeline.loop,
    )


def check(*plans: Plan) -> None:
    """Raise StreamsError with the problems of all pipelines."""
    problems = [
        f"Pipeline {plan.pipeline.name!r}: {problem}"
        for plan in with_loops(plans)
        for problem in plan.description.problems
    ]
    if problems:
        raise StreamsError(*problems)


def _description(
    pipeline: Pipeline, outputs: tuple[Output, ...], queries: list[Query], problems: list[str]
) -> Description:
    lines, sources = describe_inputs(pipeline)
    letters = tuple(each.dead_letters for each in pipeline.streams.values() if each.dead_letters is not None)
    described = [
        QueryDescription(
            query.name,
            query.mode,
            (*(output.topic for output in query.outputs), *(letters if query.dead_letters else ())),
            query.operators,
        )
        for query in queries
    ]
    return Description(
        pipeline.name, pipeline.exactly_once, lines, [*map(output_line, outputs)], described, sources, problems
    )


def _has_protobuf() -> bool:
    """Whether Python can read the state of a processor."""
    return find_spec("google") is not None and find_spec("google.protobuf") is not None


def _problems(output: Output, operators: Operators) -> list[str]:
    what = f"to({output.topic!r})"
    if not operators.is_streaming:
        return [f"{what}: its rows come from tables only; a pipeline is driven by the records of a stream"]
    found = []
    if operators.has(PROCESSOR) and not _has_protobuf():
        found.append(f"{what}: a processor needs the package protobuf: pip install 'ottla[protobuf]'")
    if output.mode == "append" and operators.has(AGGREGATE):
        found.append(f"{what}: a running aggregate has no end: set mode='updates', or mode='final' for windows")
    if output.mode == "updates" and not operators.has(AGGREGATE, PROCESSOR, STATE_FUNCTION):
        found.append(f"{what}: its rows do not change, because there is no aggregate: set mode='append'")
    if output.mode == "final" and not operators.has(AGGREGATE):
        found.append(f"{what}: there is no aggregate to wait for: set mode='append'")
    if output.mode == "final" and operators.has(AGGREGATE) and not operators.has_watermark:
        found.append(f"{what}: windows close by event time: set time= and late= of the stream")
    try:
        shape(output)
        if not found:
            check_supported(output.rows, is_update=output.mode == "updates")
    except StreamsError as error:
        found += error.problems
    except SPARK_ERRORS as error:
        if (failure := classify(text_of(error))).is_retriable:
            raise TemporaryError(f"{what}: {failure.reason}") from error
        found.append(f"{what}: {_reason(error)}")
    return found
