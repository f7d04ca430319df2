from __future__ import annotations

import re
import time
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.errors import InvalidName
from godwit.core.names import check_message_id, check_type, family_of, group_name, new_message_id, queue_name

ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+\-]*")


@pytest.mark.parametrize("name", ["a", "9", "orders", "notifications:high", "a.b_c/d@e+f-g", "x" * 255])
def test_these_are_names(name: str) -> None:
    assert [str(queue_name(name)), str(group_name(name))] == [name, name]


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a\n", "ä", "a#b", "{a}", "x" * 256, None, 7, b"a"])
def test_these_are_no_names(name: str) -> None:
    for check in (queue_name, group_name):
        with pytest.raises(InvalidName) as caught:
            check(name)
        assert caught.value.name == name


@given(st.text(max_size=260))
def test_a_name_is_refused_or_returned_as_it_is(name: str) -> None:
    good = ALLOWED.fullmatch(name) is not None and len(name) <= 255
    if good:
        assert queue_name(name) == name
    else:
        with pytest.raises(InvalidName):
            queue_name(name)


@pytest.mark.parametrize("name", ["x", "a/b?c={1}", "~", "x" * 255])
def test_a_message_id_may_be_any_printable_ascii(name: str) -> None:
    check_message_id(name)


@pytest.mark.parametrize("name", ["Order created", "ä", "x" * 100])
def test_a_type_may_be_any_printable_text(name: str) -> None:
    check_type(name)


def test_a_new_id_is_a_uuid_of_version_7_that_tells_its_time() -> None:
    before = time.time_ns() // 1_000_000
    name = new_message_id()
    after = time.time_ns() // 1_000_000
    uuid = UUID(name)
    assert (str(uuid), uuid.version, uuid.variant) == (name, 7, "specified in RFC 4122")
    assert before <= uuid.int >> 80 <= after
    check_message_id(name)


def test_new_ids_are_unique_and_those_of_a_later_millisecond_sort_later() -> None:
    ids = [new_message_id() for _ in range(20_000)]
    assert len(set(ids)) == len(ids)
    times = [UUID(name).int >> 80 for name in ids]
    assert sorted(times) == times
    assert sorted(ids, key=lambda name: name[:13]) == ids


def test_ids_made_one_after_the_other_are_of_one_family() -> None:
    ids = [new_message_id() for _ in range(3_200)]
    times = {name[:13] for name in ids}
    families = {family_of(name) for name in ids}
    assert all(name.startswith(family_of(name)) for name in ids)
    assert 50 < len(families) <= 101 + len(times), "32 to each, and a new one with every millisecond"
    for other in ("orders-7", str(uuid4())):
        assert family_of(other) == other


def test_the_random_bits_of_new_ids_vary_everywhere() -> None:
    ids = [UUID(new_message_id()).int & ((1 << 76) - 1) for _ in range(4_000)]  # a hundred families and more
    ones, zeros = 0, 0
    for value in ids:
        ones |= value
        zeros |= ~value
    fixed = 0b11 << 62
    assert (ones & zeros & ((1 << 76) - 1)) | fixed == (1 << 76) - 1
