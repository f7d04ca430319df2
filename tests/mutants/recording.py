"""Bugs planted in the recorder: what it makes of a broker that was set back."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant


def set_back(name: str, backend: str = "file-sqlite") -> tuple[str, ...]:
    """Name a test of brokers that were set back."""
    return (f"tests/store/recorder/test_set_back.py::test_{name}[{backend}]",)


MUTANTS: Final = (
    Mutant(
        name="recorder: an end before its position is taken for nothing new",
        file="runtime/recorder/recorder.py",
        old="    return ends.last_seq > 0 and position != Position(ends.epoch, ends.last_seq)\n",
        new="    return ends.rows_after(position) > 0\n",
        tests=set_back("a_recorder_that_runs_on_while_its_broker_is_set_back_records_what_comes", "sqlite"),
    ),
    Mutant(
        name="recorder: rows written again up to its position are not looked at",
        file="runtime/recorder/resync.py",
        old="bounded_ms(chunk.at) != written_ms",
        new="bounded_ms(chunk.at) < 0",
        tests=set_back("rows_that_were_written_again_up_to_the_position_and_beyond_are_recorded"),
    ),
    Mutant(
        name="recorder: a number that another message has now keeps the former one",
        file="runtime/recorder/resync.py",
        old="        if gone and before is not None:\n",
        new="        if not gone and before is not None:\n",
        tests=set_back("rows_that_were_written_again_up_to_the_position_and_beyond_are_recorded"),
    ),
    Mutant(
        name="recorder: the time of the row it starts over from is not remembered",
        file="runtime/recorder/resync.py",
        old="        batch.steps[shard] = msgspec.structs.replace(batch.steps[shard], at=written_ms)\n",
        new="",
        tests=set_back("a_recorder_that_starts_again_after_a_loss_finds_none_a_second_time"),
    ),
    Mutant(
        name="status: tables of rows that the broker lost are believed",
        file="brokers/contract.py",
        old="position.epoch == self.epoch and position.seq > self.last_seq",
        new="position.epoch != self.epoch and position.seq > self.last_seq",
        tests=set_back("who_asks_for_a_status_after_a_loss_gets_the_broker_s_answer"),
    ),
    Mutant(
        name="status: of a copy that is open again the ended one is shown",
        file="store/journal_tail.py",
        old='        known.setdefault((copy["queue_name"], copy["consumer_group"], copy["publish_seq"]), dict(copy))\n',
        new='        known[copy["queue_name"], copy["consumer_group"], copy["publish_seq"]] = dict(copy)\n',
        tests=set_back("a_recorder_that_finds_the_end_before_its_position_says_so_and_records_what_comes"),
    ),
)
