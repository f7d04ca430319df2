from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.config.toml_lines import Path, lines_of

DOCUMENT = '''\
# a comment with [brackets] and = signs
broker_url = "memory://"
"quoted key" = 1
dotted . "inner key".deep = { a = 1, b = [ 1, 2 ] }

[consumer] # another comment
lease = 15_000
text = """
[not.a.table]
key = "not a key" """
literal = \'\'\'
name = 1
\'\'\'
when = 1979-05-27 07:32:00

[[queues]]
name = "a#b"
consumer_groups = [
  "one",   # first
  { name = "two", max_concurrency = 2 },
  "th,r]ee",
]

[queues.retry_policy]
max_attempts = 3

[[queues.routing.rules]]
condition = 'type == "x"'

[[queues.routing.rules]]
condition = "escaped \\" quote = 1"

[[queues]]
name = "b"
[queues.retry_policy]
max_attempts = 4
[[queues.routing.rules]]
condition = "y"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("broker_url",), 2),
        (("quoted key",), 3),
        (("dotted",), 4),
        (("dotted", "inner key", "deep", "b", 1), 4),
        (("consumer",), 6),
        (("consumer", "lease"), 7),
        (("consumer", "text"), 8),
        (("consumer", "literal"), 11),
        (("consumer", "when"), 14),
        (("queues",), 16),
        (("queues", 0), 16),
        (("queues", 0, "name"), 17),
        (("queues", 0, "consumer_groups"), 18),
        (("queues", 0, "consumer_groups", 0), 19),
        (("queues", 0, "consumer_groups", 1, "max_concurrency"), 20),
        (("queues", 0, "consumer_groups", 2), 21),
        (("queues", 0, "retry_policy", "max_attempts"), 25),
        (("queues", 0, "routing", "rules", 0, "condition"), 28),
        (("queues", 0, "routing", "rules", 1, "condition"), 31),
        (("queues", 1), 33),
        (("queues", 1, "retry_policy", "max_attempts"), 36),
        (("queues", 1, "routing", "rules", 0, "condition"), 38),
    ],
)
def test_every_key_knows_its_line(path: Path, line: int) -> None:
    assert lines_of(DOCUMENT)[path] == line


def test_nothing_inside_a_string_or_comment_is_taken_for_a_key() -> None:
    assert set(lines_of(DOCUMENT)) == set(paths_in(tomllib.loads(DOCUMENT)))


def test_windows_line_ends_count_once() -> None:
    assert lines_of("a = 1\r\n\r\n[b]\r\nc = 2\r\n") == {("a",): 1, ("b",): 3, ("b", "c"): 4}


def test_an_empty_document_has_no_lines() -> None:
    assert lines_of("") == {}
    assert lines_of("\n# only a comment") == {}


def paths_in(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        inner = [((*path, name), part) for name, part in value.items()]
    elif isinstance(value, list):
        inner = [((*path, number), part) for number, part in enumerate(value)]
    else:
        return []
    return [found for here, part in inner for found in (here, *paths_in(part, here))]


scalars = st.one_of(
    st.integers(-9, 9).map(str),
    st.sampled_from(["true", "1.5", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00"]),
    st.text(alphabet="ab #[]{}=,.'", max_size=6).map(lambda text: f'"{text}"'),
    st.text(alphabet='ab #[]{}=,."\\', max_size=6).map(lambda text: f"'{text}'"),
    st.text(alphabet="ab #[]{}=,.'\n", max_size=6).map(lambda text: f'"""\n{text}"""'),
)
names = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", '"g\\"h"'])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + " ,\n# x ] y\n".join(items) + "\n]"),
        st.lists(st.tuples(names, inner), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: "{" + ", ".join(f"{name} = {value}" for name, value in pairs) + " }"
        ),
    ),
    max_leaves=6,
)
blocks = st.tuples(
    st.sampled_from(["", "[t{}]", "[t{}.u.v]", "[[w]]", "[w.x]", "[[w.y]]"]),
    st.lists(st.tuples(names, values), max_size=3, unique_by=lambda pair: pair[0]),
)


@given(st.lists(blocks, max_size=5))
def test_the_scanner_finds_exactly_the_keys_that_tomllib_reads(parts: list[tuple[str, list[tuple[str, str]]]]) -> None:
    lines = []
    for number, (header, pairs) in enumerate(parts):
        lines.append(header.format(number))
        lines += [f"{name} = {value}" for name, value in pairs]
    text = "\n".join(lines)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert set(lines_of(text)) == set(paths_in(document))
