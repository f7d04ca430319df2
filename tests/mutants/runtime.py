"""Bugs planted in the runtime: settling, effects, order, scheduling, supervision, cancellation."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

HOSTILE: Final = "tests/runtime/test_hostile_errors.py::"
ONCE: Final = "tests/store/effects/test_once.py::"
AMONG: Final = "tests/scheduler/test_one_among_many.py::"
BACKGROUND: Final = "tests/runtime/test_background_tasks.py::"
BATCHING: Final = "tests/runtime/test_producer_batching.py::"
STARTING: Final = "tests/runtime/test_supervisor.py::"
HEALTH: Final = "tests/runtime/test_health_checks.py::"

MUTANTS: Final = (
    Mutant(
        name="once: the key of a plain function is given back at its time limit",
        file="runtime/effects/once.py",
        old="            if once is not None and not running.done():\n",
        new="            if once is None:\n",
        tests=(f"{ONCE}test_a_plain_function_beyond_its_time_keeps_its_key_until_it_ends[sqlite-True]",),
        patience_seconds=60,
    ),
    Mutant(
        name="once: a thread that runs on holds its key in the message's name",
        file="runtime/effects/once.py",
        old='former, self._holder = self._holder, f"{self._holder}/{secrets.token_hex(8)}"',
        new="former = self._holder",
        tests=(f"{ONCE}test_a_plain_function_beyond_its_time_keeps_its_key_until_it_ends[sqlite-True]",),
        patience_seconds=60,
    ),
    Mutant(
        name="once: a result that cannot be encoded fails the message",
        file="runtime/effects/once.py",
        old="    except BaseException as error:  # noqa: BLE001 - objects of an application may raise anything\n",
        new="    except TypeError as error:\n",
        tests=(f"{ONCE}test_an_effect_whose_result_cannot_be_kept_is_not_made_again",),
    ),
    Mutant(
        name="producer: messages of one key go again side by side",
        file="runtime/producer/batcher.py",
        old="            key = place if envelope.ordering_key is None else (envelope.queue, envelope.ordering_key)\n",
        new="            key = place\n",
        tests=(f"{BATCHING}test_messages_of_a_key_keep_their_order_when_another_one_of_the_batch_is_refused",),
    ),
    Mutant(
        name="outbox: later messages of a key overtake a refused one",
        file="runtime/effects/outbox.py",
        old="                if key[1]:\n",
        new="                if not key:\n",
        tests=("tests/store/effects/test_outbox.py::test_a_refused_message_is_overtaken_by_none_of_its_key[sqlite]",),
    ),
    Mutant(
        name="outbox: a message is claimed before earlier ones of its key are due",
        file="store/sqlite/sql/outbox/due.sql",
        old="earlier.number < one.number",
        new="earlier.number > one.number",
        tests=("tests/store/effects/test_outbox.py::test_a_refused_message_is_overtaken_by_none_of_its_key[sqlite]",),
    ),
    Mutant(
        name="scheduler: one queue that is away ends the tick",
        file="runtime/scheduler/sender.py",
        old="                self.away[queue] = error\n        return done\n",
        new="                raise\n        return done\n",
        tests=(f"{AMONG}test_a_queue_that_is_away_starves_no_other[sqlite]",),
    ),
    Mutant(
        name="scheduler: one rule that cannot be planned stops them all",
        file="runtime/scheduler/ticker.py",
        old="            except Exception as error:  # noqa: BLE001 - one rule",
        new="            except LookupError as error:  # noqa: BLE001 - one rule",
        tests=(f"{AMONG}test_a_rule_whose_zone_this_machine_does_not_know_stops_no_other[sqlite]",),
    ),
    Mutant(
        name="supervisor of processes: a signal reaches only children that are listed",
        file="runtime/supervisor.py",
        old="                self._pass_on()  # to a child that was just being started when the signal came\n",
        new="",
        tests=(f"{STARTING}test_a_signal_while_children_are_starting_reaches_all_and_ends_the_start[0-when it runs]",),
    ),
    Mutant(
        name="worker: StopIteration of a plain function never reaches its waiter",
        file="runtime/threads.py",
        old="    except StopIteration as error:\n",
        new="    except StopAsyncIteration as error:\n",
        tests=(f"{HOSTILE}test_whatever_a_handler_raises_its_message_is_settled[the end of an iteration-plain]",),
        patience_seconds=40,
    ),
    Mutant(
        name="worker: what a filter raises leaves its message unsettled",
        file="runtime/delivery/execution.py",
        old="        except BaseException as error:  # noqa: BLE001 - whatever a filter or check raises",
        new="        except LookupError as error:  #",
        tests=(f"{HOSTILE}test_a_filter_or_check_that_raises_fails_its_message[filter-plain-OddError]",),
        patience_seconds=40,
    ),
    Mutant(
        name="judgement: an application's verdict is taken as it is",
        file="core/failures/judgement.py",
        old="    kind, wait = FailureKind(verdict.kind), verdict.retry_after\n",
        new="    kind, wait = verdict.kind, verdict.retry_after\n",
        tests=(f"{HOSTILE}test_whatever_a_classify_hook_returns_the_message_is_settled[no kind]",),
        patience_seconds=40,
    ),
    Mutant(
        name="alerts: a sink whose name cannot be read silences the others",
        file="telemetry/sinks.py",
        old="    except BaseException:  # noqa: BLE001 - the name of a broken sink",
        new="    except LookupError:  #",
        tests=(f"{HOSTILE}test_a_hostile_sink_silences_no_other[OddError]",),
    ),
    Mutant(
        name="settler: one settlement that cannot be carried out takes the others with it",
        file="runtime/delivery/settler.py",
        old="                await self._settle_apart(batch)\n",
        new="",
        tests=(f"{BACKGROUND}test_a_settlement_that_cannot_be_carried_out_loses_no_other",),
        patience_seconds=60,
    ),
    Mutant(
        name="background: a task that raised an odd error is not started again",
        file="core/background.py",
        old="            except BaseException as error:  # noqa: BLE001 - no error of any kind may end",
        new="            except Exception as error:  #",
        tests=(f"{BACKGROUND}test_every_background_task_that_fails_is_counted_shown_and_comes_back[sqlite]",),
        patience_seconds=60,
    ),
    Mutant(
        name="manager: a cancelled close leaves the broker open",
        file="manager.py",
        old="            ending.push_async_callback(self.broker.close)\n",
        new="            pass\n",
        tests=("tests/runtime/test_manager.py::test_closing_goes_on_when_one_of_its_steps_fails",),
    ),
    Mutant(
        name="manual: a cancelled acknowledgement forgets the delivery",
        file="runtime/manual.py",
        old="            self._held.setdefault(key, delivery)\n",
        new="",
        tests=("tests/runtime/test_manager.py::test_an_acknowledgement_that_did_not_get_through_can_be_tried_again",),
    ),
    Mutant(
        name="health: a killed worker is named for as long as its entry lasts",
        file="runtime/worker/heartbeat.py",
        old="        return now_ms - self.last_heartbeat_ms > 2 * MISSED_BEATS * self.interval_ms\n",
        new="        return False\n",
        tests=(f"{HEALTH}test_a_killed_worker_is_named_and_after_three_more_intervals_forgotten",),
    ),
    Mutant(
        name="retry: a postponement counts as a failure",
        file="core/failures/judgement.py",
        old="error=record, postponed=True, pause=pause)\n",
        new="error=record, pause=pause)\n",
        tests=("tests/runtime/test_downstream.py::test_postponements_have_a_limit_of_their_own[memory]",),
        patience_seconds=60,
    ),
    Mutant(
        name="breaker: every failure speaks of the downstream",
        file="core/failures/breaker.py",
        old="SAID_ONLY: Final = frozenset({Away.AWAY})\n",
        new="SAID_ONLY: Final = frozenset(Away)\n",
        tests=("tests/runtime/test_breaker.py::test_without_a_breaker_only_a_handlers_own_word_stops_pulling",),
    ),
)
