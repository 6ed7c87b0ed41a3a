"""The documentation site: it is built without warnings, and has the pages that are generated."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

from tools.docsite import api, diagrams, hooks

from ottla import clients
from tests.peers.cache import in_ci

ROOT = Path(__file__).parents[2]
# One build takes ten seconds of CPU time: one worker of pytest-xdist gets all tests.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all tests."""
    try:
        diagrams.library()
    except diagrams.LibraryMissing as error:
        if in_ci():
            raise
        pytest.skip(str(error))
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "tools.docsite", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def page(site: Path, name: str) -> str:
    """Return the text of a page, as a browser shows it."""
    text = (site / name / "index.html").read_text()
    return html.unescape(re.sub(r"<[^>]+>", "", text[text.index("<article") :]))


def test_every_page_of_the_repository_is_in_the_site_and_its_search(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert [name for name in pages if not (site / name / "index.html").exists()] == []
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {row["location"].partition("#")[0].strip("/") for row in index["docs"]}
    assert pages <= found
    assert "Ottla is Apache Kafka's little sister" in page(site, "")


def test_each_command_has_its_help_on_the_page_of_commands(site: Path) -> None:
    text = page(site, "reference/commands")
    for usage in ("Usage: ottla up", "Usage: ottla topic create", "Usage: ottla connect offsets", "Usage: ottla check"):
        assert usage in text


def test_methods_that_are_made_from_others_have_their_signature_and_text(site: Path) -> None:
    text = page(site, "reference/admin")
    assert "delete_topics(" in text
    assert "Delete a topic" in text
    assert "send(" in page(site, "reference/producer")


def test_each_public_name_of_the_clients_is_on_one_page() -> None:
    pages = [text for title, _, text in api.pages() if api.PAGES[title][0] == api.CLIENTS]
    for name in clients.__all__:
        if callable(getattr(clients, name)):
            assert sum(f"\n## {name}\n" in text for text in pages) == 1, name


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    foreign = {}
    for path in site.rglob("*.html"):
        text = path.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source|video)[^>]+src=\"?((?:https?:)?//[^\" >]+)", text)
        links = re.findall(r"<link[^>]*>", text)
        loaded += [each for each in links if "canonical" not in each and re.search(r"href=\"?(?:https?:)?//", each)]
        if loaded:
            foreign[path.name] = loaded
    assert foreign == {}
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()[\s\"']*(?:https?:)?//[^)\s]+", path.read_text()) == [], path


@pytest.mark.parametrize(("name", "source"), [("", "assets/"), ("ARCHITECTURE", "../assets/")])
def test_pages_with_a_diagram_load_its_library_before_the_theme_looks_for_it(
    site: Path, name: str, source: str
) -> None:
    text = (site / name / "index.html").read_text()
    script = f'<script src="{source}mermaid.min.js"></script>'
    assert text.index(script) < text.index("<body")
    assert 'globalThis["mermaid"]' in (site / diagrams.IN_SITE).read_text()
    assert "mermaid.min.js" not in (site / "configuration" / "index.html").read_text()


@pytest.mark.parametrize(
    ("name", "link", "expected"),
    [
        ("docs/cli.md", "cluster.md#start", "cluster.md#start"),
        ("README.md", "docs/cli.md", "cli.md"),
        ("README.md", "docs/decisions", "decisions/index.md"),
        ("docs/architecture/groups.md", "../reliability.md", "../reliability.md"),
        ("docs/clients-moving.md", "../examples/services/README.md", "repository/examples/services/README.md"),
        ("CHANGELOG.md", "CONTRIBUTING.md", "CONTRIBUTING.md"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(name: str, link: str, expected: str) -> None:
    assert hooks.relocated(f"see [it]({link}), `[no]({link})`", name)[0].startswith(f"see [it]({expected}), ")


def test_links_to_directories_become_text_and_others_stay() -> None:
    text = "[files](../deploy/metrics) [web](https://example.org/x) [here](#part)"
    assert hooks.relocated(text, "docs/metrics.md") == ("files [web](https://example.org/x) [here](#part)", set())


def test_broken_links_are_errors() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "strict: true" in settings
    assert "links: {not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}" in settings
