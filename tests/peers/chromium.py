"""Chromium without a window, driven by selenium, for tests of web pages on loopback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LOAD_S = 30.0


def missing_for_chromium() -> str | None:
    """Return why no browser can run, as a sentence, or None."""
    found = shutil.which("chromium") and shutil.which("chromedriver")
    return None if found else "no Chromium: run `make peers`, or install chromium and chromium-driver"


@contextmanager
def browser(profile: Path, width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """A browser with an empty profile in a directory. Its log has the errors of pages (`get_log("browser")`)."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program is not None
    assert driver is not None
    options = ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        # Chromium's sandbox does not start as root. The pages are the project's own.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = Chrome(options=options, service=Service(driver))
    try:
        found.set_page_load_timeout(LOAD_S)
        found.set_window_size(width, height)
        yield found
    finally:
        found.quit()
