"""Names and sizes: modules are nouns or verbs, class names unique, folders small, constructors short."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from tests.project.specification import ROOT

SOURCE: Final = ROOT / "src"
NOUNS_IN_ING: Final = frozenset({"monitoring", "routing", "testing", "tracing"})
"""What these name is called so everywhere; every other word in -ing says that something is done, not what does it."""
MODULES_IN_A_FOLDER: Final = 15
ARGUMENTS: Final = 7
MANY_ARGUMENTS: Final = {
    "BatchPublisher": 9, "MessageScheduler": 12, "PartitionedPublish": 8, "Puller": 12, "QueueProducer": 12,
    "Taker": 9, "Ticker": 8, "WakeSubscriber": 9, "Worker": 9,
}  # fmt: skip
"""Constructors that still take more than they should; a number may only become smaller."""
METAPHORS: Final = frozenset({"agenda", "books", "carer", "hands", "hub", "janitor", "parcel", "teller", "undertaker"})
"""Names that modules once had; a newcomer cannot guess what any of them does."""
MODULES: Final = sorted(SOURCE.rglob("*.py"))


def _place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_no_module_is_named_after_a_doing_or_a_metaphor() -> None:
    words = {(path, word) for path in MODULES for word in (*path.stem.split("_"), path.parent.name)}
    wrong = {(_place(path), word) for path, word in words if word.endswith("ing") and word not in NOUNS_IN_ING}
    wrong |= {(_place(path), word) for path, word in words if word in METAPHORS}
    assert wrong == set(), "name a module after the role it has (`publisher`) or the verb it keeps (`publish`)"


def test_every_exception_is_needed() -> None:
    stems = {word for path in MODULES for word in path.stem.split("_")}
    assert stems >= NOUNS_IN_ING


def test_a_public_class_has_its_name_alone() -> None:
    homes = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(_place(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_a_folder_has_few_modules() -> None:
    counts = Counter(_place(path.parent) for path in MODULES if not path.stem.startswith("_"))
    large = {place: count for place, count in counts.items() if count > MODULES_IN_A_FOLDER}
    assert large == {}, "a package is missing: move what belongs together into one"


def test_a_constructor_takes_few_arguments() -> None:
    counts = {
        node.name: len([*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]) - 1
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
    }
    many = {name: count for name, count in counts.items() if count > MANY_ARGUMENTS.get(name, ARGUMENTS)}
    assert many == {}, "give it a collaborator in place of what belongs together"
    assert all(counts[name] > ARGUMENTS for name in MANY_ARGUMENTS), "this exception is not needed any more"
