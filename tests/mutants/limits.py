"""Bugs planted in the limits of what applications say: instants, durations, counts, texts and names."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance

ENVELOPE: Final = "tests/core/test_envelope.py::"
RETRY: Final = "tests/core/test_retry.py::"
QUEUES: Final = "tests/core/test_queues.py::"
MANAGER: Final = "tests/runtime/test_hostile_values.py::"


def seen_by(backend: str, *names: str) -> tuple[str, ...]:
    """Name tests with hostile values as they run over a broker."""
    return conformance(backend, tuple(f"hostile_values.py::{name}" for name in names))


MUTANTS: Final = (
    Mutant(
        name="limits: a message before 1970 is sealed as it is",
        file="core/messages/envelope.py",
        old="(expires_ms is not None and not EARLIEST_MS <=",
        new="(expires_ms is not None and not -(1 << 60) <=",
        tests=(f"{ENVELOPE}test_an_expiry_before_1970_is_in_the_first_millisecond_of_1970",),
    ),
    Mutant(
        name="limits: a body keeps the expiry that its envelope lost",
        file="core/messages/envelope.py",
        old="expires_at=None if expires_at is None else bounded_instant(expires_at),",
        new="expires_at=expires_at,",
        tests=(f"{ENVELOPE}test_every_instant_of_a_message_is_moved_inside_the_limits[year 1]",),
    ),
    Mutant(
        name="limits: neighbours of a batch are not looked at",
        file="runtime/producer/prepare.py",
        old="                if EARLIEST_MS <= created_ms <= LATEST_MS:\n",
        new="                if created_ms:\n",
        tests=(f"{MANAGER}test_messages_alike_are_moved_inside_the_limits_each",),
    ),
    Mutant(
        name="limits: the latest instant leaves no room for a ttl",
        file="core/limits.py",
        old="LATEST_MS: Final = 250_215_004_800_000",
        new="LATEST_MS: Final = 253_370_764_800_000",
        tests=(f"{ENVELOPE}test_every_instant_of_a_message_is_moved_inside_the_limits[the last]",),
    ),
    Mutant(
        name="limits: a zone that raises is not caught",
        file="core/messages/checks.py",
        old='        except Exception as error:\n            raise InvalidMessage(field, f"is in a zone',
        new='        except ZeroDivisionError as error:\n            raise InvalidMessage(field, f"is in a zone',
        tests=(f"{ENVELOPE}test_a_zone_that_cannot_be_used_is_refused_naming_the_field",),
    ),
    Mutant(
        name="limits: attempts without end stay as they are",
        file="core/limits.py",
        old='f"a whole number, {least:,} or more")\n    return min(int(value), most)\n',
        new='f"a whole number, {least:,} or more")\n    return int(value)\n',
        tests=(f"{ENVELOPE}test_a_policy_without_end_is_capped_when_it_is_read",),
    ),
    Mutant(
        name="limits: the priority of a queue stays as it is",
        file="core/limits.py",
        old="    return max(-LARGEST_COUNT, min(int(value), LARGEST_COUNT))\n",
        new="    return int(value)\n",
        tests=(f"{QUEUES}test_what_is_read_has_the_same_limits_as_what_is_made",),
    ),
    Mutant(
        name="limits: durations without end stay as they are in settings",
        file="core/limits.py",
        old='        raise InvalidSetting(setting, value, "0 or more")\n    return bounded(duration)\n',
        new='        raise InvalidSetting(setting, value, "0 or more")\n    return duration\n',
        tests=(f"{QUEUES}test_what_is_meant_to_be_without_end_becomes_the_largest",),
    ),
    Mutant(
        name="limits: a linear delay is multiplied as a timedelta",
        file="core/failures/retry.py",
        old="multiplied(self.initial_delay, self.max_delay, attempt)",
        new="min(self.initial_delay * attempt, self.max_delay)",
        tests=(f"{RETRY}test_a_policy_without_end_has_delays_within_the_limits",),
    ),
    Mutant(
        name="limits: a power of any multiplier is taken",
        file="core/failures/retry.py",
        old="    except OverflowError:\n",
        new="    except ZeroDivisionError:\n",
        tests=(f"{RETRY}test_a_policy_without_end_has_delays_within_the_limits",),
    ),
    Mutant(
        name="limits: a multiplier of infinity is a number",
        file="core/limits.py",
        old="or not least <= value <= most:\n",
        new="or not least <= value:\n",
        tests=(f"{RETRY}test_impossible_policies_are_refused",),
    ),
    Mutant(
        name="limits: brackets without end raise what they raise",
        file="core/messages/envelope.py",
        old="except (GodwitError, RecursionError) as error:",
        new="except GodwitError as error:",
        tests=(f"{ENVELOPE}test_opening_what_is_no_message_raises_a_decode_error",),
    ),
    Mutant(
        name="limits: metadata of any type are sealed",
        file="core/messages/envelope.py",
        old="        check_metadata(message.metadata)\n",
        new="        pass\n",
        tests=(f"{ENVELOPE}test_what_no_handler_could_read_is_not_sealed",),
    ),
    Mutant(
        name="limits: a field of a wrong type raises AttributeError at the manager",
        file="runtime/producer/prepare.py",
        old="            check_fields(message)  # what",
        new="            pass  # what",
        tests=(f"{MANAGER}test_a_message_that_no_handler_could_read_is_refused[routing]",),
    ),
    Mutant(
        name="limits: the error of a transform is shown by its own means",
        file="core/messages/routing.py",
        old='f"raised {type_name(error)}: {error_text(error)}"',
        new='f"raised {type_name(error)}: {error}"',
        tests=(f"{MANAGER}test_a_transform_that_gives_nonsense_refuses_its_queue_only[raises TextOfAnotherTypeError]",),
    ),
    Mutant(
        name="limits: a message that nobody can read cannot be rejected",
        file="runtime/manual.py",
        old="        except msgspec.DecodeError:\n",
        new="        except ZeroDivisionError:\n",
        tests=(f"{MANAGER}test_a_message_that_nobody_can_read_is_rejected_as_its_group_says",),
    ),
    Mutant(
        name="limits: a delay in the past refuses the whole call",
        file="brokers/arguments.py",
        old='as_duration("delay", settlement.delay)',
        new='as_time_setting("delay", settlement.delay)',
        tests=seen_by("memory", "test_a_retry_in_the_past_is_one_at_once_and_refuses_nothing[delay0]"),
    ),
    Mutant(
        name="limits: the text of an error is kept as it came",
        file="core/failures/failure.py",
        old="message=clean(message, limit=MESSAGE_CHARACTERS)[:MESSAGE_CHARACTERS],",
        new="message=message,",
        tests=seen_by("memory", "test_an_error_of_any_text_is_kept_and_stops_nothing[surrogate]"),
    ),
    Mutant(
        name="limits: a run is as long as somebody says",
        file="brokers/arguments.py",
        old='max(0, as_whole("run_ms", run_ms))',
        new="run_ms",
        tests=seen_by("memory", "test_a_run_of_any_length_is_kept_within_the_limits[2147483648]"),
    ),
    Mutant(
        name="limits: a settlement that is none is met half-way",
        file="brokers/arguments.py",
        old="        if type(one) is not Ack\n",
        new="        if isinstance(one, Nack | GiveUp)\n",
        tests=seen_by("memory", "test_a_settlement_that_is_none_refuses_the_call_before_anything_changes[nothing]"),
    ),
    Mutant(
        name="limits: a worker may have any name",
        file="brokers/arguments.py",
        old="    if type(worker) is not str or not is_worker(worker):\n",
        new="    if type(worker) is not str:\n",
        tests=seen_by("memory", "test_a_call_with_what_cannot_be_is_refused_and_changes_nothing[an endless worker]"),
    ),
    Mutant(
        name="limits: a shared value lives longer than time",
        file="brokers/arguments.py",
        old="now_ms + milliseconds(bounded(ttl))",
        new="now_ms + milliseconds(ttl) * 1_000_000",
        tests=seen_by("sqlite", "test_a_shared_value_may_live_without_end_or_not_at_all[ttl0]"),
    ),
    Mutant(
        name="limits: sqlite looks for queues of any name",
        file="brokers/sqlite/layout/step.py",
        old="        if queue is None and is_name(name):\n",
        new="        if queue is None:\n",
        tests=seen_by(
            "sqlite",
            "test_a_call_with_what_cannot_be_is_refused_and_changes_nothing[a pull of a queue with a surrogate]",
        ),
    ),
    Mutant(
        name="limits: an odd ack id hides its group from the others of the call",
        file="brokers/sqlite/settle.py",
        old="        if not ack_id.isascii():\n            return None  # all of ours are\n",
        new="",
        tests=seen_by("sqlite", "test_ack_ids_of_any_text_are_unknown_and_hurt_no_other"),
    ),
    Mutant(
        name="limits: redis sends ack ids of any text",
        file="brokers/redis/settle.py",
        old='ack_id.split("#", 3) if ack_id.isascii() else ()',
        new='ack_id.split("#", 3)',
        tests=seen_by("redis", "test_ack_ids_of_any_text_are_unknown_and_hurt_no_other"),
    ),
    Mutant(
        name="limits: a letter id ends in any text",
        file="brokers/arguments.py",
        old="    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS else None\n",
        new="    return int(text)\n",
        tests=seen_by("redis", "test_letters_and_messages_of_any_id_do_not_exist"),
    ),
    Mutant(
        name="limits: a reader's position may be any number",
        file="brokers/arguments.py",
        old="not 0 <= position.seq <= _LARGEST_SEQ):\n",
        new="position.seq < 0):\n",
        tests=seen_by("sqlite", "test_positions_and_readers_of_any_value_are_refused_or_kept"),
    ),
)
