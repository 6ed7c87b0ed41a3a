"""Drawings of pipelines: each topic and query once, and boxes that do not overlap."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.streams.description import Description, Operator, QueryDescription
from ottla.streams.drawing import graph_of, layers, mermaid, place, svg

SVG = "{http://www.w3.org/2000/svg}"


def described(name: str, sources: list[str], topics: list[str], *operators: Operator) -> Description:
    query = QueryDescription(name, "append", tuple(topics), operators)
    return Description(name, False, {}, [], [query], {f"p{number}": topic for number, topic in enumerate(sources)})


COUNTS = described("wordcount", ["lines"], ["counts"], Operator("aggregate", ("word",)))
ALARMS = described("alarms", ["counts", "limits"], ["out"])


def test_mermaid_has_each_topic_once() -> None:
    assert mermaid([COUNTS, ALARMS]).splitlines() == [
        "flowchart LR",
        '    t0[("lines")]',
        '    q0_0["wordcount<br/>aggregate by word"]',
        '    t1[("counts")]',
        '    t2[("limits")]',
        '    q1_0["alarms"]',
        '    t3[("out")]',
        "    t0 --> q0_0",
        "    q0_0 --> t1",
        "    t1 --> q1_0",
        "    t2 --> q1_0",
        "    q1_0 --> t3",
    ]


def test_layers_follow_the_records() -> None:
    assert layers(graph_of([COUNTS, ALARMS])) == [["t0"], ["q0_0"], ["t1", "t2"], ["q1_0"], ["t3"]]
    # Pipelines that write to each other's inputs.
    assert layers(graph_of([described("a", ["x"], ["y"]), described("b", ["y"], ["x"])])) == [
        ["t0"], ["q0_0"], ["t1"], ["q1_0"],
    ]  # fmt: skip
    assert layers(graph_of([])) == []


def test_svg_has_the_lines_of_each_box() -> None:
    odd = described("odd", ["a"], ["b"], Operator("aggregate", ("a < 'b' & c",)))
    drawn = ET.fromstring(svg([COUNTS, odd]))
    assert [each.text for each in drawn.iter(f"{SVG}text")] == [
        "lines", "a", "wordcount", "aggregate by word", "odd", "aggregate by a < 'b' & c", "counts", "b",
    ]  # fmt: skip
    assert len([each for each in drawn.iter(f"{SVG}path") if each.get("marker-end")]) == 4
    assert ET.fromstring(svg([])).tag == f"{SVG}svg"


NAMES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)


@settings(max_examples=50)
@given(st.lists(st.tuples(NAMES, NAMES), max_size=5))
def test_boxes_do_not_overlap_and_are_in_the_drawing(pipelines: list[tuple[list[str], list[str]]]) -> None:
    drawn = [described(f"p{number}", *each) for number, each in enumerate(pipelines)]
    boxes, width, height = place(graph_of(drawn))
    for one, other in combinations(boxes.values(), 2):
        is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert is_beside or one.y + one.height <= other.y or other.y + other.height <= one.y
    for box in boxes.values():
        assert min(box.x, box.y) >= 0
        assert box.x + box.width <= width
        assert box.y + box.height <= height
