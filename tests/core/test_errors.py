from __future__ import annotations

import inspect
import pickle
import re

import pytest

from godwit.core import errors
from godwit.core.errors import GodwitError

SAMPLES = {
    "str": "some 'value'",
    "str | None": "some value",
    "int": 7,
    "int | None": 3,
    "float": 2.5,
    "object": ("a", 1),
    "tuple[str, ...]": ("a", "b"),
    "tuple[str, ...] | None": ("a", "b"),
    "str | os.PathLike[str]": "/some/where",
}
CLASSES = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, GodwitError) and found is not GodwitError
]
RAISED = [found for found in CLASSES if "__init__" in found.__dict__]


def sample(kind: type[GodwitError]) -> GodwitError:
    parameters = list(inspect.signature(kind).parameters.values())
    return kind(*(SAMPLES[str(parameter.annotation)] for parameter in parameters))


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_an_error_pickles_with_all_it_carries(kind: type[GodwitError]) -> None:
    error = sample(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_an_error_says_the_fact_and_then_the_remedy(kind: type[GodwitError]) -> None:
    error = sample(kind)
    assert error.fact
    assert error.remedy
    assert str(error) == f"{error.fact}. {error.remedy}"
    assert not re.search(r"(?i)\berror:|failed to", str(error))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_is_in_the_tree_of_the_docstring(kind: type[GodwitError]) -> None:
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or "")


def test_the_tree_of_the_docstring_names_no_class_that_is_gone() -> None:
    tree = (errors.__doc__ or "").split("\n\n")[1]
    named = {name for line in tree.splitlines() for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", line)}
    assert named <= {found.__name__ for found in CLASSES} | {"GodwitError"}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidAckId, 3),
        (errors.InvalidMessage, 3),
        (errors.TopicNotFound, 5),
        (errors.SubscriptionNotFound, 5),
        (errors.QueueNotFound, 5),
        (errors.AlreadyExistsError, 6),
        (errors.QueueFull, 8),
        (errors.BrokerBusy, 14),
    ],
)
def test_codes_follow_the_specification(kind: type[GodwitError], code: int) -> None:
    assert kind.code == code


def test_the_texts_of_the_specification_begin_as_written_there() -> None:
    assert str(errors.TopicNotFound("t")).startswith("Topic not found: t")
    assert str(errors.SubscriptionNotFound("s")).startswith("Subscription not found: s")
    assert str(errors.InvalidAckId("a")).startswith("Invalid ack ID: a")


def test_long_values_are_shortened_in_texts_but_kept_whole_as_data() -> None:
    error = errors.InvalidName("queue", "x" * 5_000, "short ones")
    assert len(str(error)) < 200
    assert len(error.name) == 5_000


def test_an_error_without_data_of_its_own_says_what_it_was_given() -> None:
    assert str(errors.InvalidArgumentError("limit", 3)) == "limit 3"
