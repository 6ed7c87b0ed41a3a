"""Rejects the worst idioms in docstrings, comments, messages, docs and test names: `check_language.py [PATH ...]`.

The rules are those of docs/STYLE.md. The check is a list of patterns, so it catches only what a pattern can catch;
a reader has to find the rest. Code between backquotes and in fenced blocks is not checked. Prints one line per
finding, with the suggested term, and exits with code 1 if there are any. Uses nothing but the standard library.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("src", "tests", "benchmarks", "examples", "tools", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
# These two quote the idioms that they reject.
EXEMPT = ("docs/STYLE.md", "tools/check_language.py", "tests/unit/test_check_language.py")

# The things of Spark, Python and Java that make a compound with the name.
_NOUNS = (
    "call|error|exception|format|function|logger|object|option|plan|process|quer(y|ie)|session|setting|task|thread|trace|"
    "version|worker|write"
)
RULES = [
    (r"(harm(s|ed|ing)?|spoil(s|ed|t)?)", "corrupt, corrupted, damage"),
    (r"mend(s|ed|ing)?", "repair, fix"),
    (r"anew", "again; rebuild, recreate"),
    (r"pass(es|ed|ing)? over", "skip"),
    (r"le(ave|aves|aving|ft) out", "omit, skip"),
    (r"(is|are|was|were|be|been|being|gets?) told", "is notified, receives, reports"),
    (r"(go|goes|going|gone|went) away", "is deleted, is lost, disconnects"),
    (r"(is|are|was|were|be|been) gone", "is deleted, is lost, has disconnected"),
    (r"who(ever)? waits?", "waiter, waiting request"),
    (r"(whoever|whosoever)", "name the subject: the caller, the client, the follower"),
    (r"(nobody|somebody|anybody)", "name the subject: no client, a caller, any thread"),
    (r"the ones? (before|after)", "the previous, the next"),
    (r"ask(s|ed|ing)? again", "retry"),
    (r"what there is", "the contents, the state"),
    (r"what (it|they) (holds?|has|have)", "its contents, its state"),
    (r"(?<!there )(is|are|was|were) (?-i:none)", "does not exist, has none"),
    (
        r"(?<!there )(is|was) no (?!(longer|more|such|later|earlier|older|newer|one|way|problem)\b)[a-z]+",
        "is not a ...",
    ),
    (r"(do|does|did) not get on", "makes no progress"),
    (r"turns? of the (event )?loop", "event loop iteration"),
    (
        r"(this|these|each|both|of the|in the|other|log|own) (rooms?|house|floor)(?! (for|to|left))",
        "package, layer, architecture",
    ),
    (r"(asyncio|async|blocking|both|each|two|thin) faces?", "interface, API"),
    (r"let(s|ting)? go of", "release"),
    (r"sees? to it", "ensure"),
    (r"(upkeep|chores?)", "maintenance, maintenance task"),
    (r"the way back", "the inverse, the opposite direction"),
    (r"(met an? bug|bug met|meets? an? bug)", "an unhandled error, an exception"),
    (r"of (one|those|him|her) who", "name the subject: a client that ..."),
    (r"for who(ever)?", "for callers that ..."),
    (r"what becomes of", "what happens to"),
    (r"by and by", "gradually, later"),
    (r"(at|of|in) (his|her)", "its, the client's"),
    (r"(that|those) of", "name the noun: the function's name"),
    (r"(is|are|was|were) those|those which", "name the noun: it has the function's parameters"),
    (r"the other ones?", "the other, with its noun"),
    (r"so many", "that many, too many"),
    (r"it is that", "name the noun"),
    (r"the ones? (that|of|in|on|here|through|given|loaded)", "name the noun: the broker that ..."),
    (r"(of|with) what", "name the thing: of the records that ..."),
    (r"an? \w+ of (Spark|Python|Java|Kafka)(?!'s)", "a compound: a Spark session"),
    (rf"({_NOUNS})(e?s)? of (Spark|Python|Java)(?!'s)", "a compound: the Spark session"),
    (r'"""what', "an imperative or a noun phrase"),
]
_RULES = [(re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), term) for pattern, term in RULES]
# Nearly all texts match no rule: one search for all of them takes a third of the time of one search for each.
_ANY_RULE = re.compile(rf"(?<![\w-])(?:{'|'.join(pattern for pattern, _ in RULES)})(?![\w-])", re.IGNORECASE)
_CODE = re.compile(r"``[^`]*``|`[^`\n]*`")
# A search for these parts takes a tenth of the time of `tokenize`. A quote or a number sign outside of strings and
# comments begins one, so that a search from left to right finds both, whatever they contain.
_PARTS = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
    | (?P<string>(?:\b[a-zA-Z]{1,2})?(?:
        \"{3}(?:[^"\\]|\\.|\"(?!\"\"))*\"{3}
        | \'{3}(?:[^'\\]|\\.|\'(?!\'\'))*\'{3}
        | \"(?:[^"\\\n]|\\.)*\"
        | \'(?:[^'\\\n]|\\.)*\'
    ))
    | \b(?P<test>test_\w+)
    """,
    re.DOTALL | re.VERBOSE,
)


@cache
def findings(text: str) -> Sequence[tuple[str, str]]:
    """Each idiom in a text, with the term to use instead. Most strings of a code base occur more than once."""
    prose = " ".join(_CODE.sub("``", text).split())
    if not _ANY_RULE.search(prose):
        return ()
    return [(match.group(), term) for pattern, term in _RULES for match in pattern.finditer(prose)]


def prose_of_python(path: Path) -> Iterator[tuple[int, str]]:
    """Comments (joined where they continue), strings and names of tests, with the number of their first line."""
    comments: list[tuple[int, str]] = []
    text = path.read_text(encoding="utf-8")
    line, counted = 1, 0
    for part in _PARTS.finditer(text):
        line += text.count("\n", counted, part.start())
        counted = part.start()
        if part["comment"]:
            if comments and line == comments[-1][0] + comments[-1][1].count("\n") + 1:
                first, before = comments.pop()
                comments.append((first, f"{before}\n{part['comment'].lstrip('#')}"))
            else:
                comments.append((line, part["comment"].lstrip("#")))
        else:
            yield line, part["string"] or part["test"].replace("_", " ")
    yield from comments
    if path.name.startswith("test_"):
        yield 1, path.stem.replace("_", " ")


def prose_of_markdown(path: Path) -> Iterator[tuple[int, str]]:
    """Paragraphs outside of fenced code, with the number of their first line."""
    fenced = False
    start, lines = 1, list[str]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced or not line.strip() or line.lstrip().startswith(("```", "|", "- ", "#")):
            if lines:
                yield start, "\n".join(lines)
            lines = []
        if not fenced and line.strip() and not line.lstrip().startswith("```"):
            if not lines:
                start = number
            lines.append(line)
    if lines:
        yield start, "\n".join(lines)


def check(paths: Iterable[Path]) -> Iterator[str]:
    """One line for each finding in the Python and Markdown files below the paths."""
    for path in sorted(file for root in paths for file in ([root] if root.is_file() else root.rglob("*"))):
        relative = str(path.relative_to(ROOT))
        if path.suffix not in (".py", ".md") or relative in EXEMPT:
            continue
        prose = prose_of_python(path) if path.suffix == ".py" else prose_of_markdown(path)
        for line, text in prose:
            for idiom, term in findings(text):
                yield f'{relative}:{line}: "{idiom}": write {term}'


def main(arguments: list[str]) -> int:
    """Check the paths, or all of the project."""
    found = list(check([ROOT / argument for argument in arguments or CHECKED]))
    print("\n".join(found) if found else "No idioms found.")
    if found:
        print(f"{len(found)} findings; docs/STYLE.md has the rules.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
