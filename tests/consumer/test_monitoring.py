"""The dashboard and the alert rules of examples/monitoring: every metric, label and reason in them is served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.prometheus import PrometheusCollector
from remote_fetch.errors import ErrorKind
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Fallback, MetadataUnusable, RangeFetched, RangeRetried

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
EXPRESSIONS = [
    *(target["expr"] for panel in PANELS.values() for target in panel["targets"]),
    *(variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"),
    *(rule["expr"] for rule in ALERTS),
]


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The labels of each sample that a collector serves."""
    partition, metrics = TopicIdPartition(Uuid(bytes(16)), "orders", 0), Metrics("c", "g")
    for event in (RangeFetched(partition, 1, 0.1), RangeRetried(partition, "auth"), Fallback(partition, 0, 1, "auth")):
        metrics(event)
    metrics(MetadataUnusable(partition, 1, 1))
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics.snapshot))
    return {sample.name: set(sample.labels) for family in registry.collect() for sample in family.samples}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression(expression: str, served: dict[str, set[str]]) -> None:
    names = re.findall(r"kafka_remote_\w+", expression)
    assert names
    assert set(names) <= served.keys()
    labels = set.intersection(*(served[name] for name in names))
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",")} <= labels
    assert set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression)) <= labels
    for reason in re.findall(r"reason!?=\"([^\"]*)\"", expression):
        assert reason in set(ErrorKind)
    assert expression.count("(") == expression.count(")")


def test_panels_and_rules_are_apart() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) == len(PANELS)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    assert {rule["labels"]["severity"] for rule in ALERTS} == {"warning", "critical"}


def test_a_legend_names_labels_that_its_expression_keeps() -> None:
    for panel in PANELS.values():
        for target in panel["targets"]:
            kept = {label.strip() for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in by.split(",")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept
