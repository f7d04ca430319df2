"""From Spark's errors to ours: what our own code raised in a worker comes back as text inside a long trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from godwit.core.errors import GodwitError, PipelineFailed
from godwit.core.logs import get_logger

log = get_logger(__name__)
_OURS: Final = re.compile(r"^godwit\.core\.errors\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"\[[A-Z][A-Z_.0-9]+\] ?(.+)$", re.MULTILINE)


class FailureSource(Protocol):
    """Something that remembers the error it raised into Spark."""

    failure: BaseException | None


@contextmanager
def translate_errors(source: FailureSource | None = None) -> Iterator[None]:
    """Raise our own error in place of the one Spark made of it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        failure = source.failure if source is not None else None
        if isinstance(failure, GodwitError):
            raise failure from None
        raise translate(error) from error


@contextmanager
def tolerate_failure(step: str) -> Iterator[None]:
    """Go on when Spark does not do a step of an end: the end of its session does it, by force if need be."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        log.warning("Spark did not do a step of the end", step=step, reason=type(error).__name__)


def translate(error: Exception) -> GodwitError:
    """Return what went wrong in one sentence of ours, when our code said it, or in Spark's."""
    text = str(error)
    said = _OURS.findall(text)
    if said:
        kind, sentence = said[-1]
        return PipelineFailed(kind, sentence)
    # The last one is the cause of those before it.
    spark = _CLASS.findall(text)
    first = spark[-1] if spark else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return PipelineFailed(type(error).__name__, first)
