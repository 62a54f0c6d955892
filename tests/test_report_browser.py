"""The page in a real browser: quiet, offline, inert, readable on a phone and by keyboard."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from macredit.credit import credit
from macredit.episode import episode_from_json
from macredit.report import MethodResult, Report
from macredit.rows import rows_of

pytestmark = pytest.mark.browser
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
EVIL = "<script>document.title='owned'</script><img src=http://evil.invalid/x onerror=alert(1)>"


def example() -> Report:
    """A talk in which one of two helpers carries a hostile name and says hostile things."""
    names = ("boss", "a", EVIL)
    team = {"orchestrator": "boss", "agents": {n: {} for n in names}, "edges": [["boss", n] for n in names[1:]]}
    turns = [
        {"agent": "boss", "to": ["a", EVIL], "text": "word " * 300},
        {"agent": "a", "to": ["boss"], "text": "\u05e9\u05dc\u05d5\u05dd \U0001f389"},
        {"agent": EVIL, "to": ["boss"], "text": EVIL},
        {"agent": "boss", "to": ["user"], "text": "1"},
    ]
    silenced = [(["a"], 1.0), ([EVIL], 1.0), (["a", EVIL], 0.0)]
    known = [{"silenced": who, "reward": reward} for who, reward in silenced]
    records = [
        {"id": f"e{i}", "task": "t", "reward": 1.0, "team": team, "turns": turns, "counterfactuals": known}
        for i in range(3)
    ]
    rows = rows_of([episode_from_json(record) for record in records])
    results = tuple(MethodResult(n, "paper", {}, credit(rows, n), {}) for n in ("grpo", "sharp", "shapley"))
    metrics = tuple({"step": step, "reward": step / 10} for step in range(10))
    return Report("who helped?", results, rows, {"shapley": {"a": 0.5, EVIL: 0.5}}, metrics)


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    browser, control = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or control is None:
        missing = "chromium and chromedriver are not installed (Debian: apt install chromium chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(control)) as chrome:
        yield chrome


@pytest.fixture
def page(driver: webdriver.Chrome, tmp_path: Path) -> webdriver.Chrome:
    for log in ("browser", "performance"):
        driver.get_log(log)  # type: ignore[no-untyped-call]  # read away what earlier pages left
    driver.get(example().save(tmp_path / "report.html").as_uri())
    return driver


def test_no_console_message_and_no_request(page: webdriver.Chrome) -> None:
    assert page.get_log("browser") == []  # type: ignore[no-untyped-call]
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]  # type: ignore[no-untyped-call]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert sum(url.startswith("file:") for url in asked) == 1


def test_the_numbers_are_visible(page: webdriver.Chrome) -> None:
    rows = {row.text.split()[0]: row.text.split() for row in page.find_elements(By.CSS_SELECTOR, "#credits tbody tr")}
    assert rows["grpo"][1:7] == ["1.000", "±0.000"] * 3
    assert rows["shapley"][1:6] == ["—", "0.500", "±0.000", "0.500", "±0.000"]
    assert "another stands in" in page.find_element(By.TAG_NAME, "main").text


def test_hostile_text_is_shown_and_does_nothing(page: webdriver.Chrome) -> None:
    assert page.title == "who helped?"
    assert EVIL in page.find_element(By.TAG_NAME, "body").text
    assert page.find_elements(By.CSS_SELECTOR, "script, img") == []


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE])
def test_a_folded_text_opens_by_keyboard(page: webdriver.Chrome, key: str) -> None:
    folded = page.find_element(By.CSS_SELECTOR, ".turn details")
    summary = folded.find_element(By.TAG_NAME, "summary")
    page.execute_script("arguments[0].focus()", summary)
    assert page.switch_to.active_element == summary
    summary.send_keys(key)
    assert folded.get_attribute("open") is not None
    assert folded.find_element(By.TAG_NAME, "p").is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_fits_the_window_and_follows_the_colour_scheme(page: webdriver.Chrome, width: int, scheme: str) -> None:
    window = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", window)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    paper = page.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    bright = int(paper.partition("(")[2].partition(",")[0]) > 128
    assert bright == (scheme == "light")
