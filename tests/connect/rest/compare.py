"""Compares the answers of two workers, without what must differ: addresses, versions, documentation texts, traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.connect.rest.script import Answer

_VALUES = {"documentation", "worker_id", "version", "commit", "kafka_cluster_id", "trace", "last_modified"}
_HEADERS = ("content-type", "allow")


def normal(value: Any) -> Any:
    """Return JSON without values that must differ, and with the rows of a validation by their names."""
    if isinstance(value, dict):
        if "configs" in value:
            rows = {each["value"]["name"]: normal(each) for each in value["configs"]}
            return {**normal({name: each for name, each in value.items() if name != "configs"}), "configs": rows}
        # A version that is unknown is null in both.
        if isinstance(value.get("groups"), list):
            value = {**value, "groups": sorted(value["groups"])}
        return {
            name: ("..." if each is not None else None) if name in _VALUES else normal(each)
            for name, each in sorted(value.items())
        }
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "default_value" in value[0]:
            return {each["name"]: normal(each) for each in value}
        return [normal(each) for each in value]
    return value


def content(answer: Answer) -> dict[str, Any]:
    """Return what is compared of an answer."""
    headers = {name: answer.headers[name].replace(" ", "") for name in _HEADERS if name in answer.headers}
    if "allow" in headers:
        headers["allow"] = ",".join(sorted(headers["allow"].split(",")))
    if "location" in answer.headers:
        headers["location"] = "/" + answer.headers["location"].split("/", 3)[-1]
    return {"status": answer.status, "headers": headers, "body": normal(answer.body)}


def differences(stock: Any, ours: Any, path: str = "") -> list[str]:
    """Return the places at which two contents differ."""
    if isinstance(stock, Mapping) and isinstance(ours, Mapping):
        found = [f"{path}.{name}: only in stock" for name in stock if name not in ours]
        found += [f"{path}.{name}: only in ours" for name in ours if name not in stock]
        for name in stock:
            if name in ours:
                found += differences(stock[name], ours[name], f"{path}.{name}")
        return found
    if isinstance(stock, list) and isinstance(ours, list) and len(stock) == len(ours):
        return [each for number, (left, right) in enumerate(zip(stock, ours, strict=True))
                for each in differences(left, right, f"{path}[{number}]")]  # fmt: skip
    return [] if stock == ours else [f"{path}: {stock!r} in stock, {ours!r} in ours"]
