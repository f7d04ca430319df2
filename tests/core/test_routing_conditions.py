"""CEL conditions: what they may say, what they see, and what happens when they cannot be asked."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.errors import InvalidCondition
from godwit.core.messages.conditions import FIELDS, MAX_CONDITION_CHARACTERS, Answer, Condition
from godwit.core.messages.message import Kind, Message, MessageMetadata, Priority
from godwit.core.names import QueueName

MESSAGE = Message(
    queue=QueueName("orders"),
    type="order.created",
    kind=Kind.BULK,
    priority=Priority.HIGH,
    ordering_key="k1",
    payload={"country": "NO", "total": 12.5, "a b": {"c": 1}, "lines": [{"sku": "x"}], "text": 'say "type"'},
    attributes={"tenant": "acme"},
    metadata=MessageMetadata(source="shop", user_id="u1", headers={"trace": "t"}),
)


@pytest.mark.parametrize(
    "source",
    [
        'type == "order.created"',
        "type == 'order.created' // a comment with payload.nothing in it",
        "priority <= 80 && priority > 20",
        'payload.country == "NO"',
        'payload["country"] in ["NO", "SE"]',
        'payload["a b"].c == 1',
        'payload.lines[0].sku == "x"',
        "size(payload.lines) == 1",
        "payload.total > 12",
        'payload.text == "say \\"type\\""',
        'metadata.source == "shop" && metadata.headers["trace"] == "t"',
        'attributes["tenant"] == "acme" && "tenant" in attributes',
        'attributes.tenant == "acme"',
        'kind == "bulk"',
        'queue == "orders"',
        'ordering_key == "k1"',
        "has(payload.country) && !has(payload.city)",
        'type.startsWith("order.") && type.matches(r"^[a-z.]+$")',
        'payload.country == "SE" ? false : true',
        'payload.missing == 1 || type == "order.created"',
    ],
)
def test_a_condition_can_ask_for(source: str) -> None:
    assert Condition(source).ask(MESSAGE) == Answer(holds=True)


def test_priority_is_that_of_the_kind_when_the_message_has_none() -> None:
    condition = Condition("priority == 100")
    assert condition(Message(kind=Kind.IMMEDIATE))
    assert not condition(Message(kind=Kind.BULK))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("payload.missing == 1", "it has no field 'missing'"),
        ('payload.country > 1 && type == "order.created"', "No such overload"),
        ("payload.country", "the result is str, not true or false"),
        ("priority / 0 == 1", "division by zero"),
    ],
)
def test_a_condition_that_cannot_be_asked_does_not_hold_and_says_why(source: str, problem: str) -> None:
    condition = Condition(source)
    answer = condition.ask(MESSAGE)
    assert not answer.holds
    assert problem in str(answer.problem)
    assert [condition(MESSAGE), condition(MESSAGE), condition.failures] == [False, False, 2]


@pytest.mark.parametrize(
    ("source", "column", "problem"),
    [
        ("type ==", 8, "mismatched input the end"),
        ('type = "a"', 6, "token recognition error"),
        ('type == "a', 9, "token recognition error"),
        ('type == "a" &&\n  priority >> 3', 28, "extraneous input"),
        ("type == urgent", 9, "a message has no field 'urgent'"),
        ("true && upper(type) == 'A'", 9, "there is no function 'upper'"),
        ('metadata.sauce == "x"', 1, "metadata has no field 'sauce'"),
        (".type == 'a'", 0, "a form that is not supported"),
        ("Order{type: 'a'} == payload", 1, "a message has no field 'Order'"),
        ("", 0, "is empty"),
        ("   ", 0, "is empty"),
        ('type == "' + "a" * MAX_CONDITION_CHARACTERS + '"', 1_001, "is longer than 1,000 characters"),
    ],
)
def test_a_bad_condition_is_refused_with_the_place_and_a_remedy(source: str, column: int, problem: str) -> None:
    with pytest.raises(InvalidCondition) as caught:
        Condition(source)
    assert (caught.value.column, problem in caught.value.problem) == (column, True), str(caught.value)
    assert caught.value.remedy
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("macro", ["map", "filter", "all", "exists", "exists_one"])
def test_comprehension_macros_are_refused(macro: str) -> None:
    with pytest.raises(InvalidCondition, match=rf"{macro}\(\) is not allowed") as caught:
        Condition(f"payload.lines.{macro}(line, line.sku == 'x') == true")
    assert caught.value.column == 15


def test_the_names_of_macros_are_free_inside_strings_and_as_fields() -> None:
    condition = Condition('payload.filter == "map(x)"')
    assert condition(Message(payload={"filter": "map(x)"}))


def test_a_condition_is_given_only_the_parts_it_names() -> None:
    given: list[dict[str, object]] = []

    class Spy:
        def execute(self, fields: dict[str, object]) -> bool:
            given.append(fields)
            return True

    condition = Condition('type == "a" && payload["a b"].c == 1 && payload.country == "NO" && metadata.source == "x"')
    condition._program = Spy()
    assert condition(MESSAGE)
    assert given == [
        {
            "type": "order.created",
            "payload": {"a b": {"c": 1}, "country": "NO"},
            "metadata": {"source": "shop"},
        }
    ]


def test_a_part_named_as_a_whole_is_given_whole() -> None:
    condition = Condition('payload.lines[0].sku == "x" && "sku" in payload.lines[0] && size(payload) == 5')
    assert condition.ask(MESSAGE) == Answer(holds=True)


def test_importing_the_evaluator_does_not_bring_its_command_line() -> None:
    code = (
        "import sys; from godwit.core.messages.conditions import Condition; Condition('priority > 1'); "
        "print(*{'prompt_toolkit', 'rich', 'typer'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert answer.stdout.strip() == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "country"]), inner, max_size=3)
    ),
    max_leaves=6,
)
CONDITIONS = [
    Condition(source)
    for source in (
        'payload.country == "NO"',
        "payload.a.b > 1",
        "-payload.a < payload.b * 3 + 1",
        'payload["a"][0] in [1, "x"]',
        "size(payload) > 1 && payload.a",
        "int(payload.a) % int(payload.b) == 0",
        'timestamp(payload.a) < timestamp("2030-01-01T00:00:00Z") || duration(payload.b) > duration("1s")',
        "has(payload.a) && string(payload.a).matches(payload.b)",
    )
]


@given(payload=JSON, condition=st.sampled_from(CONDITIONS))
def test_no_payload_makes_a_condition_raise(payload: object, condition: Condition) -> None:
    assert condition(Message(payload=payload)) in (True, False)


WORDS = st.lists(st.sampled_from([*"()[]{}.,'\"\\&|!=<>?:+-*/% \n1rb", *FIELDS, "has", "in", "=="]), max_size=20)


@given(words=WORDS)
def test_no_text_makes_the_compiler_raise_anything_but_a_refusal(words: list[str]) -> None:
    source = "".join(words)
    try:
        Condition(source)
    except InvalidCondition as error:
        refused_at = error.column
    else:
        refused_at = 0
    assert refused_at <= len(source) + 1
