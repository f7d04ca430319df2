"""Every broker against what is known to be right: memory against a simple model, the others against memory.

Each comparison runs at least 200 examples of 50 steps. A step, an outcome or a journal event that never occurred fails
the run: what was not tried was not shown.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import ClassVar, Final

import pytest
from hypothesis import settings

from godwit.brokers.memory import MemoryBroker, MemoryEngine
from godwit.core.journal.vocabulary import Event
from tests.conformance.harness import BACKENDS, REAL_TIME, TOPOLOGIES
from tests.properties.admin_rules import Keeping
from tests.properties.coverage import run_until_met
from tests.properties.model import Model
from tests.properties.sides import BrokerSide
from tests.properties.worker_rules import Working

MODEL_EXAMPLES: Final = 300
EXAMPLES: Final = 200
FEW_EXAMPLES: Final = 25
"""For servers that run the same scripts elsewhere: what is new is the way to them."""

OUTCOMES: Final = frozenset({
    "time passed", "outage", "crash", "maintain ok", "restart ok", "declare ok", "change lanes refused",
    "publish ok", "publish QueueFull", "publish PartialPublish", "publish QueueNotFound", "publish GroupNotFound",
    "duplicates",
    "pull ok", "pull QueueNotFound", "pull GroupNotFound", "deliveries", "settled", "refused", "extend ok",
    "cancel ok", "cancel QueueNotFound", "cancelled", "purge ok", "purge QueueNotFound", "purge GroupNotFound",
    "remove ok", "remove QueueNotFound", "remove GroupNotFound",
    "letters ok", "letters QueueNotFound", "letters listed",
    "replayed", "replay of nothing", "replay QueueFull", "discard ok",
    "pull InvalidSetting", "extend InvalidSetting",
})  # fmt: skip
"""Everything a run must have met; the rules that settle are seen by the events they journal."""


class MemoryAgainstTheModel(Working, Keeping):
    """The memory engine must do what the model does."""

    seen: ClassVar[Counter[str]] = Counter()

    def open_sides(self) -> None:
        engine = MemoryEngine(clock=self.clock)
        self.subject = BrokerSide(lambda: MemoryBroker(engine=engine, clock=self.clock), self.loop)
        self.reference = Model(self.clock)


class BrokerAgainstMemory(Working, Keeping):
    """Another broker must do what the memory engine does, journal included."""

    backend = ""

    def open_sides(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="godwit-"))
        engine = MemoryEngine(clock=self.clock)
        self.subject = BrokerSide(BACKENDS[self.backend](self.place, self.clock).open, self.loop)
        self.reference = BrokerSide(lambda: MemoryBroker(engine=engine, clock=self.clock), self.loop)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.place)


def check(machine: type[Working], examples: int) -> None:
    """Run a comparison and show that nothing was left out."""
    most = max(examples, settings.default.max_examples if settings.default else 0)
    run_until_met(machine, OUTCOMES | {f"event {event}" for event in Event}, most)


@pytest.mark.timeout(600)
def test_the_memory_broker_does_what_the_model_does() -> None:
    check(MemoryAgainstTheModel, MODEL_EXAMPLES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in {"memory", *REAL_TIME, *TOPOLOGIES}])
def test_every_other_broker_does_what_the_memory_broker_does(backend: str) -> None:
    machine = type(f"{backend}AgainstMemory", (BrokerAgainstMemory,), {"backend": backend, "seen": Counter()})
    check(machine, EXAMPLES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", sorted(TOPOLOGIES))
def test_several_servers_together_do_what_the_memory_broker_does(backend: str) -> None:
    seen: Counter[str] = Counter()
    machine = type(f"{backend}AgainstMemory", (BrokerAgainstMemory,), {"backend": backend, "seen": seen})
    run_until_met(machine, {"deliveries", "event acked", "event dead_lettered"}, FEW_EXAMPLES)
