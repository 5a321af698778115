"""The page in a real browser: it loads from disk without errors or requests, sorts, opens, and fits the window."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

CHROMIUM, DRIVER = pathlib.Path("/usr/bin/chromium"), pathlib.Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1280,900", "--force-prefers-reduced-motion",
)  # fmt: skip


@pytest.fixture
def browser(tmp_path):
    if not (CHROMIUM.exists() and DRIVER.exists()):
        pytest.skip("needs a browser: install Debian's packages chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


def requests(browser) -> list[str]:
    """Addresses of every request that the page made."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def resize(browser, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def names(browser) -> list[str]:
    return [element.text for element in browser.find_elements("css selector", ".kernel-name")]


def medians(browser) -> list[float]:
    cells = browser.find_elements("css selector", ".figures td:nth-child(3)")
    return [float(cell.get_attribute("data-value")) for cell in cells]


def check_loading(browser, address: str) -> None:
    browser.get(address)
    browser.execute_script("return document.fonts.ready")
    assert browser.title == "attend: fuser profile"
    outside = [url for url in requests(browser) if url.startswith(("http", "ws", "file")) and url != address]
    assert outside == []


def check_pictures(browser, profile) -> None:
    for selector in (".roofline circle", ".graph .group rect"):
        marks = browser.find_elements("css selector", selector)
        assert len(marks) == len(profile.kernels)
        assert all(mark.size["width"] > 5 and mark.size["height"] > 5 for mark in marks)


def check_sorting(browser, profile) -> None:
    order = [kernel.name for kernel in profile.kernels]
    assert names(browser) == order
    heads = browser.find_elements("css selector", "#kernel-table th")
    median, name = heads[2], heads[1]
    median.find_element("tag name", "button").click()
    assert median.get_attribute("aria-sort") == "descending"
    assert medians(browser) == sorted(medians(browser), reverse=True)
    assert names(browser)[0] == "sort"
    median.find_element("tag name", "button").click()
    assert median.get_attribute("aria-sort") == "ascending"
    assert medians(browser) == sorted(medians(browser))
    name.find_element("tag name", "button").click()
    assert names(browser) == sorted(order)
    assert median.get_attribute("aria-sort") == "none"


def check_opening(browser) -> None:
    row = browser.find_element("id", "kernel-2")
    button, detail = row.find_element("class name", "expand"), row.find_element("class name", "detail")
    assert not detail.is_displayed()
    button.click()
    assert detail.is_displayed()
    assert button.get_attribute("aria-expanded") == "true"
    assert "softmax_rows" in detail.find_element("tag name", "pre").text
    assert "x.max(axis=1, keepdims=True)" in detail.find_element("class name", "lines").text
    button.click()
    assert not detail.is_displayed()
    browser.find_element("css selector", '.graph a.node[href="#kernel-1"]').click()
    assert browser.find_element("css selector", "#kernel-1 .detail").is_displayed()


def check_fit(browser, folder: pathlib.Path) -> None:
    """No sideways scrolling of the page at either width, open details included; a screenshot of each."""
    for width in (1280, 800):
        resize(browser, width)
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        picture = folder / f"report-{width}.png"
        assert browser.save_screenshot(str(picture))
        assert picture.stat().st_size > 20_000


def check_theme(browser) -> None:
    def paper() -> str:
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    before = paper()
    browser.execute_script("window.scrollTo(0, 0)")
    browser.find_element("id", "theme").click()
    assert paper() != before


@pytest.mark.browser
def test_page_in_a_browser(browser, profile, tmp_path):
    folder = pathlib.Path(os.environ.get("FUSER_TEST_SCREENSHOTS", tmp_path))
    path = profile.save(tmp_path / "report.html")
    check_loading(browser, path.as_uri())
    check_pictures(browser, profile)
    check_sorting(browser, profile)
    check_opening(browser)
    check_fit(browser, folder)
    check_theme(browser)
    assert browser.get_log("browser") == []
