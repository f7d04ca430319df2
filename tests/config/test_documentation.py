"""docs/configuration.md and the code say the same: every key, its variables, default and unit, in both directions."""

from __future__ import annotations

import re

from godwit.config.description import BY_TYPE, shown_value
from godwit.config.fields import field_of
from godwit.config.keys import GROUP_KEYS, QUEUE_KEYS, RETRY_KEYS, RULE_KEYS, SETTINGS, Key
from godwit.config.queues import CONSUMER_PARTS, TYPE_PARTS
from godwit.core.durations import written
from godwit.core.names import GroupName, QueueName
from godwit.core.settings import TYPE_DEFAULTS, Settings
from godwit.telemetry.alerts import AlertName
from tests.project.specification import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
NEEDED = "needed"


def tables(beginning: str) -> list[list[str]]:
    """Return the rows of the tables whose header begins like this; a bar inside back quotes is not a border."""
    rows, inside = [], False
    for line in PAGE.splitlines():
        if line.startswith("|"):
            inside = inside or line.startswith(beginning)
            if inside and not line.startswith((beginning, "|---")):
                cells = re.split(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", line)
                rows.append([cell.strip() for cell in cells[1:-1]])
        else:
            inside = False
    return rows


def section(title: str) -> str:
    return PAGE.partition(f"\n{title}\n")[2].partition("\n#")[0]


def rows_of(title: str) -> list[tuple[str, str]]:
    """Return key and default of the table of a section."""
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    assert all(row[2].strip("| ") for row in cells)
    return [(row[0].strip("| `"), row[1]) for row in cells]


def setting_default(key: Key) -> str:
    return "the broker's file" if key.name == "store_url" else shown_value(key, field_of(Settings(), key.path))


def queue_default(key: Key) -> str:
    if key.name == "name":
        return NEEDED
    return BY_TYPE if key.name in TYPE_PARTS else shown_value(key, field_of(Settings().queue(QueueName("q")), key.path))


def group_default(key: Key) -> str:
    if key.name == "name":
        return NEEDED
    if key in RETRY_KEYS:
        return "the queue's"
    if key.name in CONSUMER_PARTS:
        return f"`consumer.{key.name}`"
    return shown_value(key, field_of(Settings().group(GroupName("g")), key.path))


def test_every_setting_is_on_the_page_with_its_variables_default_and_unit() -> None:
    documented = [row[:4] for row in tables("| key | variable |")]
    in_code = [
        [
            f"`{key.name}`",
            ", ".join(f"`{variable.name}`" for variable in key.variables),
            setting_default(key),
            key.unit,
        ]
        for key in SETTINGS.values()
    ]
    assert documented == in_code
    assert all(row[4] for row in tables("| key | variable |"))


def test_every_key_of_a_queue_is_on_the_page() -> None:
    assert rows_of("## Queues") == [(key.name, queue_default(key)) for key in QUEUE_KEYS.values()]


def test_every_key_of_a_group_is_on_the_page() -> None:
    assert rows_of("### Groups") == [(key.name, group_default(key)) for key in GROUP_KEYS.values()]


def test_every_key_of_a_rule_is_on_the_page() -> None:
    assert [row[0] for row in rows_of("### Routing rules")] == list(RULE_KEYS)


def test_what_a_type_stands_for_is_on_the_page() -> None:
    in_code = [
        [
            name.value,
            str(kind.priority),
            str(kind.max_size or "none"),
            written(kind.ttl) if kind.ttl else "none",
            str(kind.retry_policy.max_attempts),
            kind.retry_policy.strategy.value,
            written(kind.retry_policy.initial_delay),
            written(kind.retry_policy.max_delay),
            f"{kind.retry_policy.multiplier:g}",
        ]
        for name, kind in TYPE_DEFAULTS.items()
    ]
    assert tables("| type |") == in_code


def test_no_variable_is_named_on_the_page_that_nothing_reads() -> None:
    read = {variable.name for key in SETTINGS.values() for variable in key.variables}
    alerts = {name.value for name in AlertName}
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", PAGE))
    assert named - alerts == read
