"""Kafka's tools in the container image: those that health checks and start scripts call, as `ottla` commands.

`kafka-topics`, `kafka-storage`, `kafka-broker-api-versions` and `kafka-server-start`, with or without `.sh`. Options
that both commands have keep their names; an option that `ottla` does not know is its usage error.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ottla.common.failure import Failure
from ottla.common.ids import uuid_to_text
from ottla.common.system_random import random_uuid

_ACTIONS: Final = ("create", "list", "describe", "delete")
_TOPIC: Final = "--topic"


def ottla_words(words: Sequence[str], format_words: Sequence[str]) -> list[str] | str:
    """Return the words after `ottla` for a tool and its arguments, or the text to print.

    `format_words` is the command that formats the storage of this container, whatever file the tool names: scripts of
    testcontainers name the file of another image. Raises Failure for other tools.
    """
    name, *arguments = words or ("",)
    tool = name.rpartition("/")[2].removesuffix(".sh")
    if tool not in _TOOLS:
        problem = f"{tool} is not in this image: it has {', '.join(sorted(_TOOLS))} of Kafka's tools"
        raise Failure(problem, "`ottla --help` shows the commands of Ottla.", exit_code=127)
    if tool == "kafka-storage" and arguments[:1] == ["format"]:
        return list(format_words)
    return _TOOLS[tool](arguments)


def _topics(arguments: Sequence[str]) -> list[str]:
    rest, topics, action = [], [], ""
    words = iter(arguments)
    for word in words:
        if word.removeprefix("--") in _ACTIONS:
            action = word.removeprefix("--")
        elif word == _TOPIC:
            topics.append(next(words, ""))
        elif word.startswith(f"{_TOPIC}="):
            topics.append(word.removeprefix(f"{_TOPIC}="))
        else:
            rest.append(word)
    if not action:
        raise Failure(f"kafka-topics: choose one of {', '.join(f'--{each}' for each in _ACTIONS)}", exit_code=1)
    if action == "delete":
        rest.append("--yes")
    return ["topic", action, *topics, *rest]


def _storage(arguments: Sequence[str]) -> str:
    if list(arguments) == ["random-uuid"]:
        return uuid_to_text(random_uuid())
    raise Failure("kafka-storage: choose format or random-uuid", exit_code=1)


_TOOLS: Final[dict[str, Callable[[Sequence[str]], list[str] | str]]] = {
    "kafka-broker-api-versions": lambda arguments: ["cluster", *arguments],
    "kafka-server-start": lambda arguments: ["up", "--insecure", *(f"--config={each}" for each in arguments)],
    "kafka-storage": _storage,
    "kafka-topics": _topics,
}
