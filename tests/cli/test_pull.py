from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal


def group(terminal: Terminal, queue: str = "orders") -> dict[str, int]:
    (queues,) = terminal.json("queues", queue)
    numbers: dict[str, int] = queues[0]["groups"][0]
    return numbers


def ack_id(terminal: Terminal) -> str:
    (message,) = terminal.json("pull", "orders", "--keep")
    return str(message["ack_id"])


@pytest.fixture(autouse=True)
def two_orders(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "--declare", "--id", "order", input='{"n": 1}\n{"n": 2}\n')


def test_looking_at_a_message_leaves_it_as_it_was(terminal: Terminal) -> None:
    for _ in range(3):
        (message,) = terminal.json("pull", "orders")
        assert (message["id"], message["attempt"], message["outcome"], message["ack_id"]) == (
            "order-1",
            1,
            "handed back",
            None,
        )
    assert group(terminal)["ready"] == 2


def test_a_message_is_shown_for_a_person(terminal: Terminal) -> None:
    result = terminal.type("pull", "orders", "--limit", "5")
    first, facts, payload, *_ = result.stdout.splitlines()
    assert first == "order-1  message"
    assert facts.startswith("  priority 50  attempt 1  waited ")
    assert payload == '  {"n":1}'
    assert "2 messages handed back." in result.stderr
    assert "\x1b" not in result.output


def test_taking_messages_settles_them(terminal: Terminal) -> None:
    assert [message["outcome"] for message in terminal.json("pull", "orders", "--limit", "2", "--ack")] == ["acked"] * 2
    assert group(terminal)["depth"] == 0


def test_an_empty_pull_has_its_own_exit_code(terminal: Terminal) -> None:
    terminal.type("pull", "orders", "--limit", "2", "--ack")
    result = terminal.type("pull", "orders", "--wait", "10ms", code=1)
    assert result.stdout == ""
    assert "Nothing is ready in 'orders'" in result.stderr
    assert terminal.type("pull", "orders", "--json", code=1).output == ""


def test_a_kept_message_is_acked_by_its_ack_id_once(terminal: Terminal) -> None:
    kept = ack_id(terminal)
    assert group(terminal)["leased"] == 1
    assert terminal.json("ack", kept) == [{"ack_id": kept, "settled": True}]
    assert group(terminal)["depth"] == 1
    assert terminal.error("ack", kept, code=4)["error"] == "InvalidAckId"


def test_some_refused_ack_ids_are_a_part(terminal: Terminal) -> None:
    kept = ack_id(terminal)
    answers = terminal.json("ack", kept, "orders#0#default#never", code=6)
    assert [answer["settled"] for answer in answers] == [True, False]
    result = terminal.type("ack", kept, "orders#0#default#never", code=4)
    assert result.stderr.count("Invalid ack ID") == 2


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ((), "ready"),
        (("--delay", "1h"), "delayed"),
        (("--dead", "--error", "no stock"), "dead"),
        (("--hand-back",), "ready"),
    ],
)
def test_a_kept_message_is_refused_by_its_ack_id(terminal: Terminal, words: tuple[str, ...], place: str) -> None:
    before = group(terminal)[place]
    kept = ack_id(terminal)
    terminal.type("nack", kept, *words)
    assert group(terminal)[place] == before + (place != "ready")
    assert group(terminal)["leased"] == 0


def test_control_characters_do_not_reach_the_terminal(terminal: Terminal) -> None:
    terminal.type(
        "publish", "orders", '"\\u001b[31mred"', "--key", "\x1b[2J", "--attribute", "a=\x1b]0;x", "--priority", "99"
    )
    result = terminal.type("pull", "orders")
    assert "red" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("pull", "nothing"), 4),
        (("pull", "orders", "--group", "nobody"), 4),
        (("pull", "orders", "--limit", "-1"), 2),
        (("pull", "orders", "--limit", "0"), 2),
        (("pull", "orders", "--limit", "ten"), 2),
        (("pull", "orders", "--lease", "0s"), 2),
        (("pull", "orders", "--lease", "30d"), 2),
        (("pull", "orders", "--wait", "-1s"), 2),
        (("pull", "orders", "--ack", "--keep"), 2),
        (("pull",), 2),
        (("pull", "orders", "--nonsense"), 2),
        (("ack",), 2),
        (("ack", "nonsense"), 4),
        (("nack", "nonsense", "--dead", "--hand-back"), 2),
        (("nack", "nonsense"), 4),
    ],
)
def test_bad_input_has_an_exit_code_and_a_remedy(terminal: Terminal, words: tuple[str, ...], code: int) -> None:
    error = terminal.error(*words, code=code)
    assert error["fact"]
    assert error["remedy"]
    assert group(terminal)["ready"] == 2
