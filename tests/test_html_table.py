"""Tables of notebooks: well-formed, escaped, bounded; and those of the report, a job and a plan."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files

from remote_fetch import Report
from remote_fetch.html_table import MOST_ROWS, facts_table, html_table
from remote_fetch.spark import plan
from remote_fetch.spark.planning import JobPlan
from remote_fetch.tables.report import TableReport

EVIL = "<script>alert('&')</script>"


class Parsed(HTMLParser):
    """The tags that are opened and closed, and the text of each cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag == "br":
            self.cells[-1] += "|"
            return
        self.open.append(tag)
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def test_every_text_is_escaped() -> None:
    parsed = Parsed(html_table(EVIL, (EVIL,), [(EVIL,)], 1))
    assert parsed.cells == [EVIL] * 3
    assert parsed.tags["script"] == 0
    parsed = Parsed(Report(notices=(EVIL, "two"), fallbacks={EVIL: 3})._repr_html_())
    assert parsed.tags["script"] == 0
    assert parsed.cells == ["report", "fallbacks", f"{EVIL}: 3", "notices", f"{EVIL}|two"]


def test_a_table_is_bounded() -> None:
    drawn: list[int] = []

    def rows() -> object:
        for number in range(10**6):
            drawn.append(number)
            yield (number, "x" * 10_000)

    text = html_table("many", ("a", "b"), rows(), 10**6)  # type: ignore[arg-type]
    assert len(drawn) == MOST_ROWS
    assert len(text) < 100_000
    assert Parsed(text).cells[-1] == f"... and {10**6 - MOST_ROWS} more"
    assert "more" not in html_table("few", ("a",), [(1,)] * MOST_ROWS, MOST_ROWS)


def test_facts_without_a_value_are_left_out() -> None:
    assert Parsed(facts_table("facts", {"a": 0, "b": "", "c": 1, "d": None})).cells == ["facts", "c", "1"]


def test_the_report() -> None:
    report = Report(
        remote_bytes=3 << 20, remote_gets=2, records=7, fetch_s=0.12345, ends={"t-1": "there", "t-0": "here"}
    )
    assert Parsed(report._repr_html_()).cells == [
        "report", "remote_bytes", "3.0 MiB", "remote_gets", "2", "fetch_s", "0.123", "records", "7",
        "ends", "t-0: here|t-1: there",
    ]  # fmt: skip


def test_the_report_of_a_job() -> None:
    report = TableReport("id", "/to", 2, 1, 60, 3, 999, Report(records=60), 1.5, {1: (0, 30), 0: (5, 35)}, "{}")
    cells = Parsed(report._repr_html_()).cells
    assert cells[:3] == ["60 rows in 3 files", "job_id", "id"]
    assert cells[cells.index("ranges") + 1] == "0: 5 to 35|1: 0 to 30"
    assert cells[-3:] == ["report", "records", "60"]


def test_a_plan() -> None:
    tier = str(files("remote_fetch.cli") / "demo_bucket")
    options = {"subscribe": "tx", "remote.storage.url": tier, "fetch.remote.bucket.only": "true"}
    found = plan({**options, "fetch.remote.task.bytes": 16384})
    cells = Parsed(found._repr_html_()).cells
    assert cells[0].startswith(f"{len(found.tasks)} tasks, ")
    assert cells[1:4] == ["task", "size", "steps"]
    assert cells[4] == "0"
    assert cells[6].startswith("tx-0: offsets ")
    assert len(cells) == 4 + 3 * len(found.tasks)
    many = JobPlan(found.tasks * 1000, found.cost)
    assert f"... and {len(many.tasks) - MOST_ROWS} more" in many._repr_html_()
