"""A declared rate: how many messages of a group may begin in a time, over all workers."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from godwit import Rate
from godwit.admin.control import holds
from godwit.brokers.memory import MemoryBroker
from godwit.config import load
from godwit.core.errors import ConfigurationError, InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.settings import Settings
from godwit.manager import MessageQueueManager
from godwit.testing import in_memory, run_until_empty
from tests.runtime.test_kill_nine_of_workers import children
from tests.runtime.worker_processes import STARTED, SampleWorkers
from tests.waiting import eventually


async def started_ms(count: int, **options: Any) -> list[int]:
    """Handle messages in virtual time; return when each began, from the first on."""
    mq = in_memory()
    began: list[int] = []

    @mq.consumer("q", **options)
    async def handler(_: Message | list[Message]) -> None:
        began.append(mq.clock.now_ms())

    async with mq:
        await mq.enqueue_many([Message(queue="q", payload=n) for n in range(count)])
        await run_until_empty(mq)
    return [at - began[0] for at in began]


def configured(group: str, folder: Path) -> Settings:
    file = folder / "godwit.toml"
    file.write_text(f'[[queues]]\nname = "q"\nconsumer_groups = [{group}]\n')
    return load(file, environment={})


async def test_messages_begin_at_the_rate() -> None:
    began = await started_ms(50, rate=Rate("10/s", burst=2))
    assert len(began) == 50
    assert 4_700 <= began[-1] <= 5_300


async def test_batches_count_each_of_their_messages() -> None:
    began = await started_ms(40, rate=Rate("10/s", burst=10), batch=5, batch_timeout=timedelta(0))
    assert 2_700 <= began[-1] <= 4_500


async def test_without_a_rate_nothing_waits() -> None:
    assert (await started_ms(50))[-1] == 0


async def test_worker_processes_keep_it_together_also_when_one_is_killed(sample: SampleWorkers) -> None:
    count, burst, per_second = 90, 3, 30
    await sample.publish(*["work"] * count)
    with sample.worker("--processes", "3", SAMPLE_RATE=f"{per_second}/s", SAMPLE_BURST=str(burst)) as supervisor:
        await eventually(lambda: len(sample.recorded("end")) >= count // 3, within=STARTED)
        os.kill(children(supervisor.pid)[0], signal.SIGKILL)
        await eventually(sample.is_empty, within=timedelta(seconds=100))
    assert set(sample.recorded("end")) == {f"o{number}" for number in range(count)}
    began = sorted(int(line.split()[3]) for line in sample.record.read_text().splitlines() if line.startswith("begin "))
    seconds = (began[-1] - began[0]) / 1e9
    assert len(began) <= burst + per_second * seconds, f"{len(began)} began within {seconds:.2f} s"


async def test_the_rate_is_shown_with_its_group() -> None:
    mq = in_memory()

    @mq.consumer("q", rate="20/s")
    async def handler(_: Message) -> None: ...

    async with mq:
        await mq.enqueue(Message(queue="q"))
        await run_until_empty(mq)
        assert (await holds(mq.broker.shared, mq.clock)).rates == {("q", "default"): "20/s"}


async def test_a_group_has_its_rate_from_the_configuration(tmp_path: Path) -> None:
    settings = configured('{ name = "g", rate = "14/s" }', tmp_path)
    async with MessageQueueManager(MemoryBroker(), settings=settings) as mq:

        @mq.consumer("q", group="g")
        async def mailer(_: Message) -> None: ...

        @mq.consumer("q", group="other", rate="1/s")
        async def told(_: Message) -> None: ...

        assert [consumer.rate for consumer in mq.consumers] == [Rate("14/s"), Rate("1/s")]


def test_a_rate_in_the_configuration_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="14/s"):
        configured('{ name = "g", rate = "fast" }', tmp_path)


async def test_consumers_that_name_one_rate_must_agree_about_it() -> None:
    mq = in_memory()

    @mq.consumer("a", rate=Rate("1/s", name="account"))
    async def first(_: Message) -> None: ...

    @mq.consumer("b", rate=Rate("2/s", name="account"))
    async def second(_: Message) -> None: ...

    async with mq:
        with pytest.raises(InvalidSetting, match="the same rate wherever 'account' is kept"):
            mq.worker()


def test_what_is_no_rate_is_refused_where_it_is_said() -> None:
    with pytest.raises(InvalidSetting, match="rate"):
        in_memory().consumer(QueueName("q"), rate="quick")(print)
