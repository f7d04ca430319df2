from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import msgspec
import pytest

from godwit import Message, RetryPolicy
from godwit.core.errors import InvalidSetting
from godwit.pipeline.jobs.sql import naming_the_views
from godwit.pipeline.report.advice import AdviceVerdict
from godwit.pipeline.report.error_texts import error_texts
from godwit.pipeline.report.html_page import render_page
from godwit.pipeline.report.model import Report, make_report
from godwit.pipeline.transforms.report_tables import peak_depths
from godwit.testing import in_memory, run_until_empty
from tests.pipeline.histories import History, Row, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    async def lived() -> list[Row]:
        past = History(11)
        await past.begin()
        await past.go_on(900)
        return await past.rows()

    return asyncio.run(lived())


@pytest.fixture(scope="module")
def made(spark: SparkSession, rows: list[Row]) -> Report:
    return make_report(journal(spark, rows).cache(), source="memory://<test>", made_at=MADE)


def percentile(values: list[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def test_the_figures_are_those_counted_by_hand(made: Report, rows: list[Row]) -> None:
    assert {(group.queue, group.group) for group in made.groups} == {("orders", "ordered"), ("orders", "plain")}
    for group in made.groups:
        mine = [row for row in rows if row["group"] == group.group]
        told = Counter(row["event"] for row in mine)
        assert group.enqueued == told["enqueued"] + told["scheduled"]  # as in queue_analytics: a replay arrived before
        assert group.processed == told["acked"]
        assert (group.failed, group.expired) == (told["dead_lettered"], told["message_expired"])
        assert group.retries == told["nacked"]
        assert group.leases_expired == told["lease_expired"]
        assert group.peak_depth == max(row["depth"] for row in mine if row["depth"] is not None)
        waits = [row["wait_ms"] for row in mine if row["event"] == "delivered"]
        assert (group.wait_p50, group.wait_p95) == (percentile(waits, 0.5), percentile(waits, 0.95))
        assert group.wait_max == max(waits)


def test_the_timeline_holds_every_arrival_and_every_end_once(made: Report, rows: list[Row]) -> None:
    told = Counter(row["event"] for row in rows)
    assert told["replayed"] > 0
    arrived = told["enqueued"] + told["scheduled"]
    assert sum(stretch.enqueued for stretch in made.timeline) == arrived
    assert sum(stretch.processed for stretch in made.timeline) == told["acked"]
    assert len(made.timeline) <= 241


def test_the_greatest_depth_is_that_of_all_partitions_together(spark: SparkSession, rows: list[Row]) -> None:
    """Two partitions that are deep at different times, and three with the same life."""
    depths = [("orders#0", 0, 1, 100), ("orders#0", 10, 2, 3), ("orders#1", 20, 1, 90), ("orders#1", 30, 2, 80)]
    apart = [
        {"shard": shard, "epoch": "e", "queue": "orders", "group": "g", "seq": seq, "depth": depth, "event": "enqueued"}
        | {"at": MADE + timedelta(seconds=seconds)}
        for shard, seconds, seq, depth in depths
    ]
    (found,) = peak_depths(journal(spark, apart)).collect()
    assert found["peak_depth"] == 100
    together = [{**row, "shard": f"orders#{partition}"} for row in rows for partition in range(3)]
    alone, all_three = (
        {row["group"]: row["peak_depth"] for row in peak_depths(journal(spark, some)).collect()}
        for some in (rows, together)
    )
    assert all_three == {group: 3 * depth for group, depth in alone.items()}


def test_attempts_are_counted_by_the_failures_before_them(made: Report, rows: list[Row]) -> None:
    wanted: Counter[tuple[str, int, bool]] = Counter()
    for row in rows:
        if row["event"] in {"acked", "nacked", "dead_lettered"} and row["failures"] is not None:
            earlier = row["failures"] - (row["event"] != "acked")
            wanted[row["group"], max(0, earlier), row["event"] == "acked"] += 1
    for one in made.attempts:
        assert one.succeeded == wanted[one.group, one.earlier_failures, True]
        assert one.failed == wanted[one.group, one.earlier_failures, False]
    assert sum(one.succeeded + one.failed for one in made.attempts) == wanted.total()


def test_the_same_failures_and_the_workers_are_listed(made: Report, rows: list[Row]) -> None:
    told = Counter(row["event"] for row in rows)
    assert sum(pattern.failures for pattern in made.patterns) >= told["nacked"]
    assert {worker.worker for worker in made.workers} == {"w1", "w2", "w3"}
    assert sum(worker.processed for worker in made.workers) == told["acked"]
    assert {late.group for late in made.schedules} <= {"ordered", "plain"}
    assert sum(late.messages for late in made.schedules) > 0
    assert all(late.early == 0 for late in made.schedules)


def test_a_report_is_json_and_comes_back_from_it(made: Report) -> None:
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


class Page(HTMLParser):
    """Collects what a page consists of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_shows_plots_and_tables(made: Report) -> None:
    shown = Page()
    shown.feed(render_page(made))
    assert shown.tags["svg"] == 3
    assert shown.tags["polyline"] >= 3
    assert shown.tags["table"] >= 5
    assert shown.addresses == []
    assert shown.tags["script"] == shown.tags["link"] == shown.tags["img"] == 0
    assert "memory://<test>" in shown.text
    assert "Whether retrying pays" in shown.text


def test_what_the_data_says_is_text_and_never_a_tag(made: Report) -> None:
    evil = msgspec.structs.replace(
        made, groups=tuple(msgspec.structs.replace(one, queue="<script>alert(1)</script>") for one in made.groups)
    )
    assert "<script>" not in render_page(evil)


def test_a_report_of_nothing_is_a_page_too(spark: SparkSession) -> None:
    empty = make_report(journal(spark, []), source="nothing", made_at=MADE)
    assert empty.groups == ()
    assert "nothing has happened yet" in render_page(empty)


def test_the_page_shows_what_was_raised_and_what_to_change_before_everything_else(
    spark: SparkSession, rows: list[Row], made: Report
) -> None:
    (first, *_) = made.patterns
    texts = {first.error_fingerprint: "unknown: no <card>"}
    told = make_report(journal(spark, rows), source="memory://", made_at=MADE, error_texts=texts)
    change = msgspec.structs.replace(
        told.advice[0], verdict=AdviceVerdict.CHANGE, subject="max_size", text="max_size = 20 would do"
    )
    told = msgspec.structs.replace(told, advice=(change, *told.advice[1:]))
    assert told.patterns[0].error_text == "unknown: no <card>"
    page = render_page(told)
    assert page.index("max_size = 20 would do") < page.index("<details>") < page.index("unknown: no &lt;card&gt;")
    assert page.index("unknown: no &lt;card&gt;") < page.index("<svg")


async def test_texts_come_from_the_errors_of_dead_letters() -> None:
    mq = in_memory()

    @mq.consumer("orders", retry_policy=RetryPolicy(max_attempts=1))
    async def fail(message: Message) -> None:
        raise ValueError(f"no card {message.payload}")

    async with mq:
        await mq.enqueue_many([Message(queue="orders", payload=number) for number in range(3)])
        await run_until_empty(mq)
        texts = await error_texts(mq.dead_letters.letters(), most=1)
    assert len(texts) == 1
    assert next(iter(texts.values())).endswith("no card 0")


def test_a_query_on_an_unknown_table_names_the_views(spark: SparkSession) -> None:
    with pytest.raises(InvalidSetting, match=r"'orders'.*journal, messages, deliveries"), naming_the_views():
        spark.sql("SELECT * FROM orders")
