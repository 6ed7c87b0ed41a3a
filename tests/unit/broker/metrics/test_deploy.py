"""The dashboard and the alert rules of deploy/metrics name only metrics and labels that a node or a driver has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.metrics import families
from ottla.streams import metrics_rows

DEPLOY = Path(__file__).parents[4] / "deploy" / "metrics"
DASHBOARD, ALERTS = DEPLOY / "grafana-ottla.json", DEPLOY / "prometheus-alerts.yml"
METRIC = re.compile(r"\b(?:kafka|ottla|process)_[a-z0-9_]+")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
FAMILIES = {**families.FAMILIES, **metrics_rows.FAMILIES}
NAMES = {family.name + suffix for family in FAMILIES.values() for suffix in SUFFIXES.get(family.kind, ("",))}
# Prometheus adds the last three.
LABELS = {label for family in FAMILIES.values() for label in family.labels} | {"instance", "job", "quantile"}


def expressions() -> Iterator[str]:
    """The expressions of all panels and rules."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from re.findall(r"^ +expr: (.+)$", ALERTS.read_text(), re.MULTILINE)


def test_every_metric_exists() -> None:
    named = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(named) > 25
    assert sum(name.startswith("ottla_stream_") for name in named) > 5
    assert not named - NAMES


def test_every_label_exists() -> None:
    named = {
        label.strip()
        for expression in expressions()
        for each in GROUPING.findall(expression)
        for label in each.split(",")
    }
    assert not named - LABELS
    shown = set(re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", ALERTS.read_text() + DASHBOARD.read_text()))
    assert not {first or second for first, second in shown} - LABELS


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
