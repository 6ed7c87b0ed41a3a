"""Hooks of mkdocs: pages that are generated at the build, and links that lead out of docs/.

The pages in docs/ are written for readers of the repository. The site has the same files, and beside them README.md as
the home page, CHANGELOG.md, CONTRIBUTING.md and other Markdown files of the repository that a page links to. Generated
are a page with the help of each command, and the Python API (`api.py`). Files that are not Markdown, such as examples,
are copied when a page links to them. Pages with a diagram load its library from the site itself (`diagrams.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tools.docsite import api, diagrams

from ottla.cli.root import ROOT as COMMANDS

ROOT = Path(__file__).resolve().parents[2]
COMMANDS_PAGE = "reference/commands.md"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
# Words after the language are for the tests (`python notest`).
FENCE_WORDS = re.compile(r"^( *```[a-z]+) +\w[\w ]*$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors of code hosts, and complete the navigation."""
    config.mdx_configs["toc"]["slugify"] = anchor
    for section in config.nav or ():
        for name, rows in section.items():
            if name in ("Reference", "Explanation"):
                _fill(rows)
    return config


def _fill(rows: list[dict[str, object]]) -> None:
    pages = {
        "Python API": [{title: path} for title, path, _ in api.pages()],
        "Walks through the code": _listed("architecture"),
        "Decisions": _listed("decisions"),
    }
    for row in rows:
        for title in row:
            row[title] = pages.get(title, row[title])


def _listed(folder: str) -> list[dict[str, str]]:
    """The pages of a folder by the title in their first line."""
    paths = sorted((ROOT / "docs" / folder).glob("*.md"))
    return [{path.read_text().partition("\n")[0].lstrip("# "): f"{folder}/{path.name}"} for path in paths]


def anchor(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the files of the repository that pages link to."""
    sources = {path: (f"docs/{path}", file.content_string) for path, file in files.src_uris.items() if _is_page(path)}
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        sources[site_path(name)] = name, (ROOT / name).read_text()
    sources["decisions/index.md"] = "docs/decisions/index.md", _list_of_decisions()
    pages: dict[str, str] = {}
    copied: set[str] = set()
    while sources:
        path, (name, text) = sources.popitem()
        pages[path], linked = relocated(text, name)
        for target in linked - pages.keys() - sources.keys() - files.src_uris.keys():
            source = target.removeprefix("repository/")
            if _is_page(target):
                sources[target] = source, (ROOT / source).read_text()
            else:
                copied.add(target)
    pages[COMMANDS_PAGE] = commands_page()
    pages |= {path: text for _, path, text in api.pages()}
    for path, text in pages.items():
        if path in files.src_uris:
            files.remove(files.src_uris[path])
        files.append(File.generated(config, path, content=text))
    for path in copied:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path.removeprefix("repository/"))))
    try:
        files.append(File.generated(config, diagrams.IN_SITE, abs_src_path=str(diagrams.library())))
    except diagrams.LibraryMissing as error:
        raise PluginError(str(error)) from error
    _complete(config, pages)
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - the names are MkDocs's
    """Load the library before the theme looks for it, on pages with a diagram only: it has 3 MB."""
    if 'class="mermaid"' not in output:
        return output
    source = posixpath.relpath(diagrams.IN_SITE, page.url or ".")
    return output.replace("</head>", f'<script src="{source}"></script></head>', 1)


def _is_page(path: str) -> bool:
    return path.endswith(".md")


def site_path(name: str) -> str:
    """Return the place in the site of a file of the repository."""
    if name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        return name
    if name == "docs/decisions":
        return "decisions/index.md"
    return (
        "index.md"
        if name == "README.md"
        else name.removeprefix("docs/")
        if name.startswith("docs/")
        else f"repository/{name}"
    )


def relocated(text: str, name: str) -> tuple[str, set[str]]:
    """Rewrite the links of a page for the site; return the text and the files in the site that it links to.

    A link to a directory without a page becomes plain text.
    """
    here, linked = posixpath.dirname(site_path(name)), set[str]()

    def rewrite(match: re.Match[str]) -> str:
        label, link, heading = match.group(1), match.group(2), match.group(3) or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        found = site_path(target)
        if (ROOT / target).is_dir() and not _is_page(found):
            return label.lstrip("!")[1:-1]
        if (ROOT / target).is_file() or _is_page(found):
            linked.add(found)
        return f"{label}({posixpath.relpath(found, here or '.')}{heading})"

    parts = FENCE.split(FENCE_WORDS.sub(r"\1", text))
    return "".join(part if at % 2 else LINK.sub(rewrite, part) for at, part in enumerate(parts)), linked


def _list_of_decisions() -> str:
    rows = (f"- [{title}]({posixpath.basename(path)})" for row in _listed("decisions") for title, path in row.items())
    return "# Decisions\n\n" + "\n".join(rows) + "\n"


def _complete(config: MkDocsConfig, pages: dict[str, str]) -> None:
    """Add pages that the navigation does not name under a heading of their own."""
    text = str(config.nav)
    missing = [path for path in sorted(pages) if f"'{path}'" not in text and not path.startswith("repository/")]
    missing.remove("decisions/index.md")
    if missing and config.nav is not None:
        config.nav.append({"More": missing})


def commands_page() -> str:
    """The help of each command, in the order of `ottla --help`."""
    parts = ["# Commands", "The help of each command, as `ottla COMMAND --help` prints it."]
    for path, command in [("", COMMANDS), *all_commands(COMMANDS)]:
        level = "###" if " " in path else "##"
        parts += [f"{level} ottla {path}".rstrip(), f"```text\n{help_of(path, command)}\n```"]
    return "\n\n".join(parts) + "\n"


def all_commands(group: click.Command, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return each command below a group with its words."""
    if not isinstance(group, click.Group):
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix}{name}", command
        yield from all_commands(command, f"{prefix}{name} ")


def help_of(path: str, command: click.Command) -> str:
    """Return the help page of a command, 100 columns wide."""
    context = click.Context(command, info_name=f"ottla {path}".rstrip(), terminal_width=100, max_content_width=100)
    return command.get_help(context).rstrip()
