"""A headless Chromium for tests that look at pages as people do; where there is none, tests that need it are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

PACKAGES = ("chromium", "chromium-driver")
WIDE, PHONE = (1280, 900), (375, 800)
PICTURES = "PENSTOCK_PICTURES"
"""The folder that pictures go to, named by the environment; without it none are taken."""
_PATIENCE = 60.0
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--no-first-run", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def installed() -> str | None:
    """Return why there is no Chromium; it is installed once from Debian's packages where that can be done."""
    if not _programs() and os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with suppress(subprocess.TimeoutExpired):
            for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
                command = ["apt-get", "-q", *words]
                subprocess.run(
                    command, env=env, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=240
                )
    return None if _programs() else f"no browser: Debian's packages {' and '.join(PACKAGES)} are not there"


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Run a Chromium whose profile is a folder; skips the test, and says so, where there is none."""
    why = installed()
    if why is not None:
        pytest.skip(why)
    os.environ["SE_OFFLINE"] = "true"  # selenium fetches nothing
    browser, driver = _programs()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in (*_OPTIONS, f"--user-data-dir={folder}", f"--window-size={WIDE[0]},{WIDE[1]}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # What Chromium writes below the home folder goes with the test.
    service = webdriver.ChromeService(driver, env={**os.environ, "HOME": str(folder)})
    running = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(running)
    finally:
        running.quit()


class Browser:
    """What tests do with a browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to an address."""
        self.driver.get(url)

    def turn(self, url: str) -> None:
        """Go to another page of the application that is open, as by a link in it: it is not loaded again."""
        self.run(
            "history.pushState(null, '', arguments[0]); dispatchEvent(new PopStateEvent('popstate', {state: null}))",
            url,
        )

    def see(self, css: str) -> WebElement:
        """Wait until something is on the page, and return it."""
        return self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, css), f"{css} on the page")

    def all(self, css: str) -> list[WebElement]:
        """Return what is on the page now."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def click(self, css: str) -> None:
        """Click something, once it is there; what a page has renewed meanwhile is found again."""

        def clicked() -> bool:
            element = self.driver.find_element(By.CSS_SELECTOR, css)
            self.run("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        self.until(clicked, f"{css} to be clicked")

    def until(self, holds, what: str):
        """Wait until something holds, and return it; that a page renews itself meanwhile does not matter."""
        waits = WebDriverWait(self.driver, _PATIENCE, ignored_exceptions=[StaleElementReferenceException])
        return waits.until(lambda _: holds(), f"waited for {what}")

    def run(self, script: str, *values):
        """Run JavaScript in the page."""
        return self.driver.execute_script(script, *values)

    def inside(self, css: str = "iframe") -> None:
        """Go into a frame of the page."""
        self.driver.switch_to.default_content()
        self.driver.switch_to.frame(self.see(css))

    def outside(self) -> None:
        """Come out of the frame."""
        self.driver.switch_to.default_content()

    def size(self, size: tuple[int, int]) -> None:
        """Make the page as wide and high as a screen, whatever the least width of a window is."""
        wide, high = size
        metrics = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def colours(self, scheme: str) -> None:
        """Have the machine like light or dark."""
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the screen."""
        return int(self.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth"))

    def complaints(self) -> list[str]:
        """Return what the browser complained about since it was last asked: errors, and what a policy forbade."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, name: str) -> None:
        """Take a picture of what can be seen, if the environment says where to."""
        folder = os.environ.get(PICTURES)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


def _programs() -> tuple[str, str] | None:
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None
