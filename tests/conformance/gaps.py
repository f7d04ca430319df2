"""The gaps: exactly which conformance tests a backend does not pass, and the weaker promise asserted in their place.

A listed test runs as any other. It has to fail, and in the way listed here; a pass or another failure turns the suite
red. The test named in `instead` shows what holds all the same (tests/conformance/test_weaker_promises.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One test that a backend does not pass.

    `fails_with` is part of `type: text` of the failure. With `by_chance` the outcome depends on the order in which the
    server routes messages that are due together, so a pass is no surprise; the weaker promise holds in any case.
    """

    promise: int
    fails_with: str
    instead: str
    by_chance: bool = False


_REFUSED: Final = "InvalidSetting: message_ordering is True. Allowed: off on RabbitMQ"


def _ordering(promise: int = 7, instead: str = "test_message_ordering_is_refused_and_nothing_is_declared") -> Gap:
    return Gap(promise=promise, fails_with=_REFUSED, instead=instead)


def _one_lane() -> Gap:
    return Gap(promise=7, fails_with="AssertionError", instead="test_every_priority_comes_once_in_publish_order")


def _returned() -> Gap:
    return Gap(promise=7, fails_with="AssertionError", instead="test_a_returned_message_comes_again_behind_what_waits")


_RABBITMQ: Final = {
    "test_hostile_values.py::test_keys_of_any_text_keep_their_order": _ordering(),
    "test_port_journal.py::test_replaying_the_whole_journal_gives_the_live_state": _ordering(
        11, "test_replaying_the_journal_of_a_group_without_order_gives_the_live_state"
    ),
    "test_promise_02_leases.py::test_leases_survive_a_restart_of_the_client": Gap(
        promise=2, fails_with="AssertionError", instead="test_what_a_closed_client_held_is_delivered_again"
    ),
    "test_promise_03_fencing.py::test_a_lease_is_settled_through_any_client": Gap(
        promise=3, fails_with="AssertionError", instead="test_a_lease_is_settled_by_its_own_client_only"
    ),
    "test_promise_04_delays.py::test_delays_survive_a_restart": Gap(
        promise=4, fails_with="AssertionError", instead="test_what_is_due_together_comes_in_any_order", by_chance=True
    ),
    "test_promise_07_order.py::test_a_higher_lane_comes_first[20-21]": _one_lane(),
    "test_promise_07_order.py::test_a_higher_lane_comes_first[60-61]": _one_lane(),
    "test_promise_07_order.py::test_a_higher_lane_comes_first[80-81]": _one_lane(),
    "test_promise_07_order.py::test_one_pull_goes_through_the_lanes_from_the_highest": _one_lane(),
    "test_promise_07_order.py::test_every_tenth_pull_that_delivers_begins_with_the_lowest_lane": _one_lane(),
    "test_promise_07_order.py::test_pulls_that_deliver_nothing_do_not_count_towards_the_tenth": _one_lane(),
    "test_promise_07_order.py::test_a_returned_message_of_a_lower_lane_does_not_overtake_a_higher_lane": _one_lane(),
    "test_promise_07_order.py::test_a_retried_message_comes_before_those_never_delivered": _returned(),
    "test_promise_07_order.py::test_a_message_handed_back_comes_before_those_never_delivered": _returned(),
    "test_promise_07_order.py::test_a_message_whose_lease_ran_out_comes_before_those_never_delivered": _returned(),
    "test_promise_07_order.py::test_a_delayed_retry_comes_before_those_never_delivered_once_due": _returned(),
    "test_promise_07_order.py::test_returned_messages_go_to_their_publish_position": _returned(),
    "test_promise_07_order.py::test_one_message_per_key_is_in_flight": _ordering(),
    "test_promise_07_order.py::test_an_ack_releases_the_next_of_the_key": _ordering(),
    "test_promise_07_order.py::test_the_order_of_a_key_holds_across_every_return[retry]": _ordering(),
    "test_promise_07_order.py::test_the_order_of_a_key_holds_across_every_return[delay]": _ordering(),
    "test_promise_07_order.py::test_the_order_of_a_key_holds_across_every_return[hand back]": _ordering(),
    "test_promise_07_order.py::test_the_order_of_a_key_holds_across_every_return[silence]": _ordering(),
    "test_promise_07_order.py::test_a_delayed_head_blocks_its_key_and_no_other": _ordering(),
    "test_promise_07_order.py::test_a_head_that_is_dead_lettered_releases_its_key": _ordering(),
    "test_promise_07_order.py::test_a_head_that_expires_releases_its_key": _ordering(),
    "test_promise_07_order.py::test_a_head_that_is_cancelled_releases_its_key": _ordering(),
    "test_promise_07_order.py::test_a_blocked_message_that_is_cancelled_leaves_the_key_as_it_was": _ordering(),
    "test_promise_07_order.py::test_the_next_of_a_key_that_is_due_later_waits_for_its_time": _ordering(),
    "test_promise_07_order.py::test_a_replayed_dead_letter_goes_to_the_end_of_its_key": _ordering(),
    "test_promise_07_order.py::test_ordered_messages_ignore_lanes": _ordering(),
    "test_promise_07_order.py::test_a_key_is_free_again_after_its_last_message": _ordering(),
    "test_promise_07_order.py::test_the_order_of_keys_survives_a_restart": _ordering(),
    "test_promise_07_order.py::test_purging_leaves_a_leased_head_and_frees_its_key_when_it_ends": _ordering(),
    "test_promise_08_limits.py::test_leased_delayed_and_blocked_messages_count_toward_the_limit": _ordering(
        8, "test_leased_and_delayed_messages_count_toward_the_limit"
    ),
    "test_promise_08_limits.py::test_flow_control_frees_what_a_lost_worker_held": Gap(
        promise=8, fails_with="AssertionError", instead="test_what_a_lost_worker_held_is_freed_in_any_order"
    ),
    "test_promise_09_expiry.py::test_the_earlier_of_expiry_and_ttl_counts": Gap(
        promise=9, fails_with="AssertionError", instead="test_what_has_expired_is_given_up_when_it_would_be_delivered"
    ),
    "test_promise_09_expiry.py::test_a_delayed_message_expires_while_it_waits": Gap(
        promise=9, fails_with="AssertionError", instead="test_what_has_expired_is_given_up_when_it_would_be_delivered"
    ),
    "test_promise_09_expiry.py::test_a_message_already_expired_is_accepted_and_expires_at_the_next_look": Gap(
        promise=9,
        fails_with="AssertionError",
        instead="test_what_has_expired_is_given_up_when_it_would_be_delivered",
        by_chance=True,
    ),
    "test_promise_09_expiry.py::test_a_blocked_message_expires_while_it_waits": _ordering(
        9, "test_what_has_expired_is_given_up_when_it_would_be_delivered"
    ),
    "test_promise_11_bookkeeping.py::test_stats_count_every_place_a_message_can_be_in": _ordering(
        11, "test_stats_of_a_group_without_order_count_every_place"
    ),
    "test_promise_11_bookkeeping.py::test_publishing_writes_one_row_per_group_copy": Gap(
        promise=11, fails_with="AssertionError", instead="test_rows_of_arrivals_are_of_the_one_lane_there_is"
    ),
    "test_waiting_pulls.py::test_an_ack_that_releases_a_key_wakes_a_waiting_pull": _ordering(),
    "test_waiting_pulls.py::test_a_cancelled_head_wakes_a_pull_waiting_for_its_key": _ordering(),
}

GAPS: Final[dict[str, dict[str, Gap]]] = {"rabbitmq": _RABBITMQ}
"""By backend, then by `module.py::test[case]`, without the backend in the case."""


def gap_of(backend: str, module: str, test: str) -> Gap | None:
    """Return the gap that a test is on a backend; `test` is its name with its case, as pytest shows it."""
    name, _, case = test.removesuffix("]").partition("[")
    words = [word for word in (case.removeprefix(backend).removeprefix("-"),) if word]
    return GAPS.get(backend, {}).get(f"{module}::{name}" + (f"[{words[0]}]" if words else ""))
