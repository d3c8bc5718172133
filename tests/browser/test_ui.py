"""Dagster's UI as a person uses it, in a real browser: a backfill, what became of it on both
replicas, pictures, a mutation, its check, an insert that is undone.

SCREENSHOTS=docs/images takes the pictures of the README anew.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.flights import report
from tests.support.laptop import TABLE, Laptop, running_laptop
from tests.support.time_limit import time_limit

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on the PATH (Debian: apt install chromium)"
    ),
]

LOCATION = "examples.flights.definitions"
WAIT_MS = 300_000.0
"""Of a UI and a machine that are busy; what is there is seen at once."""
DAY_S = 2400.0
SCREENSHOT_MAX = 300_000
DAYS = "[2013-01-01...2013-01-31], 2013-03-05, 2013-03-07"
ROWS = 27_004 + 1_945
SHOW = """words => {
    words.scrollIntoView({block: 'center'});
    for (let one = words; one; one = one.parentElement) one.scrollLeft = 0;
}"""


@dataclass(frozen=True, slots=True)
class Ui:
    """One page of a browser on a running deployment."""

    laptop: Laptop
    page: "Page"
    pictures: Path
    asked_outside: list[str]

    def open(self, path: str, text: str | re.Pattern[str]) -> "Locator":
        """Go there, and wait until it says so."""
        self.page.goto(self.laptop.url + path)
        return self.seen(text)

    def seen(self, text: str | re.Pattern[str]) -> "Locator":
        """Wait until the page shows it; the UI measures some texts in copies that nobody sees."""
        found = self.page.get_by_text(text).filter(visible=True).first
        found.wait_for()
        return found

    def button(self, words: str) -> "Locator":
        """Icons of buttons have names too: only what is written on it counts."""
        return self.page.get_by_role("button").filter(has_text=re.compile(f"^{words}$")).first

    def screenshot(self, name: str) -> None:
        self.page.wait_for_timeout(1_500)  # what fades in has come
        file = self.pictures / f"{name}.png"
        self.page.screenshot(path=file)
        assert file.stat().st_size < SCREENSHOT_MAX

    def asset(self, name: str, view: str, text: str | re.Pattern[str]) -> "Locator":
        return self.open(f"/assets/flights{name}?view={view}", text)

    def launch(self, job: str, form: str, text: str) -> None:
        """Fill in a job's launchpad; the run has ended well, and its page says `text`."""
        self.open(f"/locations/{LOCATION}/jobs/{job}/playground", f"work_{job}")
        self.page.locator(".CodeMirror").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(f"ops: {{work_{job}: {{config: {{{form}}}}}}}")
        self.button("Launch Run").click()
        self.seen(text)
        self.seen("RUN_SUCCESS")

    def check(self, asset: str, name: str, outcome: str) -> None:
        """Execute one check of an asset, and see how it ends."""
        self.open(f"/assets/flights/{asset}?view=checks&checkDetail={name}", "Latest execution")
        is_so = re.compile(f"^{outcome}$")
        before = self.page.get_by_text(is_so).filter(visible=True).count()
        assert not before, f"{name} has {outcome} before it was asked"
        self.button("Execute").click()
        self.seen(is_so)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with running_laptop(tmp_path_factory.mktemp("laptop")) as running:
        yield running


@pytest.fixture
def ui(laptop: Laptop, tmp_path: Path) -> Iterator[Ui]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this lane needs it

    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        outside: list[str] = []
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(WAIT_MS)
        page.on(
            "request",
            lambda request: (
                outside.append(request.url)
                if not request.url.startswith((laptop.url, "data:", "blob:"))
                else None
            ),
        )
        yield Ui(laptop, page, pictures, outside)
        browser.close()


def test_a_table_s_life_in_the_ui(ui: Ui) -> None:
    with time_limit("a day in the UI", DAY_S):
        backfills(ui)
        both_replicas_have_it(ui)
        shows_plots_and_pictures(ui)
        mutates(ui)
        undoes_an_insert(ui)
        says_why_nothing_happens(ui)
    assert ui.asked_outside == [], "the UI asks nobody outside"


def backfills(ui: Ui) -> None:
    """Days that are not adjacent, in one dialog."""
    ui.asset("", "overview", "Every flight that left New York City")
    ui.button("Materialize…").click()
    ui.page.get_by_placeholder("ex: 2013").fill(DAYS)
    ui.page.keyboard.press("Enter")
    ui.seen("33 partitions")
    ui.screenshot("backfill")
    ui.button("Launch backfill").click()
    ui.laptop.wait("replication and merges", ui.laptop.is_settled, wait_s=600)
    ui.open("/runs?tab=backfills", "33 partitions").click()


def both_replicas_have_it(ui: Ui) -> None:
    for table in (ui.laptop.r1, ui.laptop.r2):
        held = report.held(table)
        assert (held.rows, held.distinct) == (ROWS, ROWS)
    for server in ("r1", "r2"):
        ui.asset(f"/{server}_parts", "events", "dagster/row_count")
        ui.seen("28949")
        ui.seen("inserted by run").evaluate(SHOW)
    ui.screenshot("parts")
    ui.open(f"/locations/{LOCATION}/asset-groups/flights/lineage", "r2_health")
    ui.page.get_by_text("Loading").first.wait_for(state="hidden")
    ui.screenshot("lineage")


def shows_plots_and_pictures(ui: Ui) -> None:
    ui.asset("/r2_parts", "overview", "Plots").click()
    ui.seen("active parts")
    ui.screenshot("plots")
    ui.check("r1_health", "parts_per_partition", "Passed")
    for name in ("picture", "parts over time"):
        row = ui.page.get_by_role("row").filter(has_text=re.compile(f"^{name}")).first
        row.get_by_text("Show Markdown").click()
        image = ui.page.locator("[role=dialog] img, .dagster-markdown img").first
        image.wait_for()
        assert image.evaluate("image => image.complete && image.naturalWidth > 0"), name
        ui.screenshot(name.replace(" ", "-"))
        ui.button("Close").click()


def mutates(ui: Ui) -> None:
    """A dry run; then the real one while merges are stopped: the check sees it, and is green when
    it is done.
    """
    united = "table: default.flights, commands: \"DELETE WHERE carrier = 'UA'\""
    ui.launch("mutate_r1", united, "parts would be rewritten")
    ui.screenshot("mutation")
    sql(ui.laptop, f"SYSTEM STOP MERGES {TABLE}")
    ui.launch(
        "mutate_r1", f"{united}, dry_run: false, mutations_sync: 0", "are to be rewritten"
    )
    ui.check("r1_health", "mutations", "Failed")
    ui.screenshot("check-late")
    sql(ui.laptop, f"SYSTEM START MERGES {TABLE}")
    ui.laptop.wait("the mutation", lambda: all(rows == ROWS - 4_972 for rows in rows_of(ui)))
    ui.check("r1_health", "mutations", "Passed")
    ui.screenshot("check")


def undoes_an_insert(ui: Ui) -> None:
    """Of a day too many, whose id its event shows; merges are stopped until it is undone."""
    before = rows_of(ui)
    sql(ui.laptop, f"SYSTEM STOP MERGES {TABLE}")
    ui.laptop.backfill("a day too many", ["2013-06-15"])
    ui.open("/assets/flights?view=partitions&partition=2013-06-15", "insert id")
    row = ui.page.get_by_role("row").filter(has_text=re.compile("^insert id")).first
    insert_id = row.inner_text().removeprefix("insert id").split()[0]
    form = f"table: default.flights, insert_id: '{insert_id}'"
    ui.launch("undo_insert_r1", form, "with no other insert's rows")
    assert rows_of(ui)[0] > before[0], "a dry run"
    ui.launch("undo_insert_r1", f"{form}, dry_run: false", "can be inserted again")
    ui.seen("is undone").evaluate(SHOW)
    ui.screenshot("undo")
    ui.laptop.wait("the other replica", lambda: rows_of(ui) == before)
    sql(ui.laptop, f"SYSTEM START MERGES {TABLE}")


def says_why_nothing_happens(ui: Ui) -> None:
    """The last ticks may still tell of a worker that is active, so each new one is looked at."""
    sensors = f"/locations/{LOCATION}/sensors"
    ui.open(f"{sensors}/log_r2", "Copies new entries of every table's log")
    over = ui.page.locator("tr").filter(has_not_text="Evaluating")
    status = over.get_by_text("0 runs requested").first
    words = ui.page.get_by_text("its queue is empty").filter(visible=True)

    def says_so() -> bool:
        ui.page.mouse.move(0, 0)
        status.hover()  # the tick's reason is shown while the pointer is there
        ui.page.wait_for_timeout(1_000)
        return words.count() > 0

    ui.laptop.wait("a tick with nothing to do", says_so, WAIT_MS / 1000)
    ui.screenshot("sensor")


def rows_of(ui: Ui) -> list[int]:
    return [report.held(table).rows for table in (ui.laptop.r1, ui.laptop.r2)]


def sql(laptop: Laptop, statement: str) -> None:
    for server in ("r1", "r2"):
        subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "rmt_pipeline.cli",
                    "--config",
                    str(laptop.config.path),
                ),
                *("sql", "--server", server, statement),
            ],
            check=True,
        )
