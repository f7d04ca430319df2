from __future__ import annotations

import re

from godwit.messagequeue import MessageQueue
from tests.project.specification import ROOT


def test_the_example_of_the_page_runs(queue: MessageQueue) -> None:
    page = (ROOT / "docs" / "messagequeue.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(code, "docs/messagequeue.md", "exec"), {})
    stats = queue.get_stats("billing")
    assert (stats.messages, stats.dead_lettered) == (0, 1)
