"""Units of settings on the command line, similar words, and the settings of each kind of client."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.failure import Failure
from ottla.tools import client_kinds
from ottla.tools.suggestions import did_you_mean, nearest
from ottla.tools.values import assignments, broker_value, explained, name_and_value, read_properties, size_of

# -- names and values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "pair"),
    [("a=b", ("a", "b")), (" a = b ", ("a", " b ")), ("a=", ("a", "")), ("a=b=c", ("a", "b=c"))],
)
def test_value_begins_after_the_first_equals_sign(word: str, pair: tuple[str, str]) -> None:
    assert name_and_value(word) == pair


@pytest.mark.parametrize("word", ["a", "", "=b", "  =b"])
def test_word_without_a_name_and_a_value_is_a_usage_error(word: str) -> None:
    with pytest.raises(Failure, match=r"^-X .* is not of the form NAME=VALUE$") as caught:
        name_and_value(word, "-X")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1.5 h", "5400000"),
        ("retention.ms", "2w", "1209600000"),
        ("retention.ms", "5m", "300000"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "512MiB", str(512 << 20)),
        ("segment.bytes", "1g", str(1 << 30)),
        ("retention.bytes", "9007199254740993b", "9007199254740993"),
        ("retention.bytes", f"{(1 << 43) - 1}m", str(((1 << 43) - 1) << 20)),
        ("segment.bytes", "5m", str(5 << 20)),
        ("segment.bytes", "1.5kb", "1536"),
        ("socket.send.buffer.bytes", "7B", "7"),
        ("producer_byte_rate", "2MiB", str(2 << 20)),
        ("cleanup.policy", "compact", "compact"),
        ("broker.rack", "7d", "7d"),
        ("compression.gzip.level", "9", "9"),
    ],
)
def test_value_with_a_unit_is_converted_to_the_unit_of_its_setting(name: str, value: str, text: str) -> None:
    assert broker_value(name, value) == text
    assert assignments([f"{name}={value}"]) == {name: text}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("retention.ms", "7GiB", "'gib' is not a unit of this setting"),
        ("retention.ms", "7y", "'y' is not a unit of this setting"),
        ("segment.bytes", "7d", "'d' is not a unit of this setting"),
        ("retention.ms", f"{'9' * 30}d", "is too large: the number must fit into 64 bits"),
        ("retention.bytes", f"{'9' * 5000}k", "is too large: the number must fit into 64 bits"),
    ],
)
def test_unit_of_another_kind_is_a_usage_error(name: str, value: str, problem: str) -> None:
    with pytest.raises(Failure, match=problem) as caught:
        broker_value(name, value)
    assert caught.value.exit_code == 2


@given(st.integers(0, 4000), st.sampled_from(["w", "d", "h", "min", "s", "ms"]))
def test_whole_durations_convert_exactly(count: int, unit: str) -> None:
    milliseconds = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}[unit]
    assert broker_value("x.ms", f"{count}{unit}") == str(count * milliseconds)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("20MiB", 20 << 20), ("1.5k", 1536), ("3 GiB", 3 << 30), ("7b", 7), ("0.5kib", 512)]
)
def test_size_is_bytes(text: str, size: int) -> None:
    assert size_of(text, "--throttle") == size


@pytest.mark.parametrize("text", ["0", "0MiB", "-5", "x", "", "5d", "1.5", "0.1b"])
def test_size_that_is_not_at_least_one_byte_is_a_usage_error(text: str) -> None:
    with pytest.raises(Failure, match="--throttle") as caught:
        size_of(text, "--throttle")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "604800000", "604800000 (7 d)"),
        ("retention.ms", "999", "999"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "9223372036854775807", "9223372036854775807"),
        ("segment.bytes", "1073741824", "1073741824 (1.0 GiB)"),
        ("segment.bytes", "1023", "1023"),
        ("min.insync.replicas", "2000", "2000"),
        ("broker.rack", None, "-"),
        ("broker.rack", "", '""'),
        ("cleanup.policy", "delete", "delete"),
    ],
)
def test_value_is_explained_in_units_for_people(name: str, value: str | None, text: str) -> None:
    assert explained(name, value) == text


def test_properties_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"none\.properties cannot be read: No such file") as caught:
        read_properties(str(tmp_path / "none.properties"))
    assert caught.value.exit_code == 2
    (tmp_path / "broken").write_text("a=\\u12")
    with pytest.raises(Failure, match=r"broken: broken escape") as caught:
        read_properties(str(tmp_path / "broken"))
    assert caught.value.exit_code == 2


# -- similar words ---------------------------------------------------------------------------------------------------

KNOWN = ["orders", "Payments", "audit-log", "audit-trail"]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("oders", "orders"),
        ("ORDERS", "orders"),
        ("payment", "Payments"),
        ("trail", "audit-trail"),
        ("it", None),
        ("xyzzy", None),
    ],
)
def test_nearest_word_is_similar_or_the_only_one_that_contains_it(word: str, near: str | None) -> None:
    assert nearest(word, iter(KNOWN)) == near


@given(st.lists(st.text(st.sampled_from("abAB-"), min_size=1, max_size=5)), st.text("abAB-", max_size=5))
def test_nearest_word_is_always_a_known_one(known: list[str], word: str) -> None:
    assert nearest(word, known) in {*known, None}
    if word in known:
        assert (nearest(word, known) or "").lower() == word.lower()


def test_advice_without_a_similar_word_is_the_alternative() -> None:
    assert did_you_mean("ordrs", KNOWN, "other") == ("Did you mean orders?",)
    assert did_you_mean("xyzzy", KNOWN, "other") == ("other",)
    assert did_you_mean("xyzzy", KNOWN) == ()


# -- settings of clients ---------------------------------------------------------------------------------------------

PROFILE: dict[str, object] = {
    "bootstrap.servers": "host:1",
    "linger_ms": "5",
    "group.id": "g",
    "fetch.min.bytes": "7",
    "group.instance.id": "i",
    "key.serializer": "str",
    "no.such.setting": "x",
}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("admin", {"bootstrap.servers", "no.such.setting"}),
        ("producer", {"bootstrap.servers", "linger.ms", "no.such.setting"}),
        ("consumer", {"bootstrap.servers", "fetch.min.bytes", "no.such.setting"}),
    ],
)
def test_profile_gives_each_client_its_settings_and_the_unknown_ones(kind: str, names: set[str]) -> None:
    shared = client_kinds.shared(PROFILE, kind)
    if kind == "admin":
        shared = {name: value for name, value in shared.items() if name not in ("group.instance.id", "key.serializer")}
    assert set(shared) == names
    assert all(shared[name] == PROFILE.get(name, "5") for name in names)


@pytest.mark.parametrize("kind", ["admin", "producer", "consumer"])
def test_common_settings_reach_every_client(kind: str) -> None:
    settings: dict[str, object] = {"bootstrap_servers": "host:1", "client.id": "c"}
    assert client_kinds.shared(settings, kind) == {"bootstrap.servers": "host:1", "client.id": "c"}


def test_settings_of_one_command_are_divided_among_its_clients() -> None:
    words = ["linger_ms=5", "fetch.min.bytes=7", "client.id=c"]
    kinds = ("producer", "consumer")
    assert client_kinds.given(words, kinds, "producer") == {"linger.ms": "5", "client.id": "c"}
    assert client_kinds.given(words, kinds, "consumer") == {"fetch.min.bytes": "7", "client.id": "c"}


@pytest.mark.parametrize(
    ("word", "kinds", "problem", "advice"),
    [
        ("group.id=g", ("consumer",), "-X group.id: the command sets it", "joins a group"),
        ("key.serializer=str", ("producer",), "-X key.serializer: the command sets it", "Keys and values are bytes"),
        ("linger.ms=5", ("admin",), "a producer has this setting, and this command has an admin client only", ""),
        ("linger.ms=5", ("consumer",), "a producer has this setting, and this command has a consumer only", ""),
        ("fetch.min.bytes=5", ("admin", "producer"), "this command has an admin client and a producer", ""),
        ("linger.mss=5", ("producer",), "did you mean 'linger.ms'", ""),
        ("on.event=print", ("producer",), "its value is a Python object, which a command line cannot give", ""),
        ("linger.ms", ("producer",), "is not of the form NAME=VALUE", ""),
    ],
)
def test_setting_that_a_command_cannot_use_is_a_usage_error(
    word: str, kinds: tuple[str, ...], problem: str, advice: str
) -> None:
    with pytest.raises(Failure) as caught:
        client_kinds.given([word], kinds, kinds[0])
    assert problem in caught.value.problem
    assert advice in " ".join(caught.value.advice)
    assert caught.value.exit_code == 2
