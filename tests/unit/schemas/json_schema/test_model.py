"""A compatible verdict is never contradicted by a value that the writer's schema permits and the reader's rejects."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from ottla.schemas.json_schema.schema import JsonSchema
from tests.unit.schemas.json_schema.drawn import Drawer

PAIRS = 750
VALUES_OF_A_PAIR = 12


@pytest.mark.parametrize("seed", range(2))
def test_valid_values_stay_valid_for_compatible_readers(seed: int) -> None:
    drawer = Drawer(seed)
    compatible = checked = rejected = 0
    for _ in range(PAIRS):
        schemas = drawer.pair()
        parsed = [JsonSchema(json.dumps(each)) for each in schemas]
        validators = [jsonschema_rs.Draft7Validator(each) for each in schemas]
        for reader, writer in ((0, 1), (1, 0)):
            is_compatible = not parsed[reader].incompatibilities(parsed[writer])
            compatible += is_compatible
            for _ in range(VALUES_OF_A_PAIR):
                value = drawer.value(schemas[writer], schemas[writer])
                if not validators[writer].is_valid(value):
                    continue
                checked += is_compatible
                is_valid = validators[reader].is_valid(value)
                rejected += not is_valid
                told = f"writer {json.dumps(schemas[writer])}\nreader {json.dumps(schemas[reader])}\nvalue {value!r}"
                assert is_valid or not is_compatible, told
    assert compatible > PAIRS / 3
    assert checked > PAIRS
    assert rejected > PAIRS / 10
