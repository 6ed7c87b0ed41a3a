"""Options of Spark's source and sink for schemas in a registry, without a registry."""

import pytest

from ottla.spark.options import OptionError, read_sink_options, read_source_options

SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
REGISTRY = {"schema": "registry", "schema.registry.url": "http://r", "basic.auth.user.info": "u:hidden"}


def test_schema_is_short_for_the_format_of_the_value():
    options = read_source_options({**SOURCE, **REGISTRY})
    assert (options.value_format, options.key_format) == ("registry", "raw")
    assert options.registry == {"schema.registry.url": "http://r", "basic.auth.user.info": "u:hidden"}
    assert read_source_options({**SOURCE, "key.format": "registry"}).key_format == "registry"


def test_secrets_are_not_shown():
    assert "hidden" not in repr(read_source_options({**SOURCE, **REGISTRY}))
    sink = read_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **REGISTRY, "mode": "FAILFAST"})
    assert "hidden" not in repr(sink)


@pytest.mark.parametrize(
    "given", [{"schema": "a INT"}, {"schema": "registry", "value.format": "avro"}, {"schema.registri.url": "http://r"}]
)
def test_wrong_options(given):
    with pytest.raises(OptionError):
        read_source_options({**SOURCE, **given})
