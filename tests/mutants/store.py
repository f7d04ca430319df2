"""Bugs planted in the recorder, the stores, and what stands on them: scheduler, outbox, once, producer."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

ROWS: Final = "tests/store/recorder/test_hostile_rows.py::"
ODD: Final = f"{ROWS}test_an_odd_value_is_brought_inside_the_limits_and_its_neighbours_are_recorded"

MUTANTS: Final = (
    Mutant(
        name="recorder: rows of the journal are taken as they are",
        file="core/journal/batches.py",
        old="    rows = fitting(chunk.event, rows, batch.unusable.append)\n",
        new="",
        tests=(f"{ROWS}test_a_delay_of_300_000_years_is_recorded_as_the_latest_instant[sqlite]",),
    ),
    Mutant(
        name="recorder: instants of a row have no limit",
        file="core/journal/limits.py",
        old="_Instant = Annotated[int, Meta(ge=0, le=LATEST_MS)]",
        new="_Instant = Annotated[int, Meta(ge=0)]",
        tests=(f"{ODD}[sqlite-an instant of the year 302,000]",),
    ),
    Mutant(
        name="recorder: the time of a chunk is taken as it is",
        file="core/journal/batches.py",
        old="    if not EARLIEST_MS <= chunk.at <= LATEST_MS:\n",
        new="    if not chunk:\n",
        tests=(f"{ROWS}test_a_chunk_of_any_time_is_recorded[sqlite-9223372036854775807]",),
    ),
    Mutant(
        name="recorder: what one shard holds stops all of them",
        file="runtime/recorder/recorder.py",
        old="        except (_Overtaken, BrokerError, StoreError):\n",
        new="        except Exception:\n",
        tests=(f"{ROWS}test_an_event_that_nobody_knows_is_passed_over[sqlite]",),
    ),
    Mutant(
        name="recorder: a shard that cannot be read stops all of them",
        file="runtime/recorder/recorder.py",
        old="                failed[shard] = error\n",
        new="                raise\n",
        tests=(f"{ROWS}test_a_shard_that_cannot_be_read_waits_and_the_others_are_recorded[sqlite-away]",),
    ),
    Mutant(
        name="recorder: what is passed over is not counted",
        file="runtime/recorder/recorder.py",
        old="            self._lost(lost)\n",
        new="            pass\n",
        tests=(f"{ROWS}test_a_row_of_no_message_is_passed_over_and_counted[sqlite-an empty row]",),
    ),
    Mutant(
        name="recorder: what could not be committed is forgotten",
        file="runtime/recorder/recorder.py",
        old="                    self._uncommittable.began(shard, error)\n                    continue\n",
        new="                    self._uncommittable.began(shard, error)\n",
        tests=(f"{ROWS}test_a_shard_that_takes_no_commit_is_tried_again_and_the_others_are_told[sqlite]",),
    ),
    Mutant(
        name="store: a result is kept as it came",
        file="store/bodies.py",
        old="        _check_json(value)\n",
        new="",
        tests=(f"{ROWS}test_a_result_of_any_bytes_is_kept_and_read_again[sqlite-not json]",),
    ),
    Mutant(
        name="store: settings that cannot be read stop the recorder",
        file="store/bodies.py",
        old="        return SpecFacts()\n",
        new="        raise\n",
        tests=(f"{ROWS}test_settings_of_a_queue_that_no_column_holds_are_recorded_as_far_as_they_can[sqlite-\\xff]",),
    ),
)
