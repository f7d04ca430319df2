"""Translation of Spark's errors: an error raised in a worker comes back as text inside a long trace."""

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


MOST_CAUSES: Final = 20
MOST_CHARACTERS: Final = 300


class FailureSource(Protocol):
    """An object that keeps the error it raised into Spark."""

    failure: BaseException | None


@contextmanager
def translate_errors(source: FailureSource | None = None) -> Iterator[None]:
    """Raise Godwit's own error in place of the one Spark made of it."""
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
    """Log and ignore Spark's failure of a shutdown step; ending the session does the step, by force if needed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        log.warning("Spark did not do a step of the end", step=step, reason=type(error).__name__)


def translate(error: Exception) -> GodwitError:
    """Return an error as one sentence: Godwit's own if a worker raised one, otherwise Spark's."""
    text = str(error)
    own_errors = _OURS.findall(text)
    if own_errors:
        kind, sentence = own_errors[-1]
        return PipelineFailed(kind, sentence)
    # The last message is the cause of those before it.
    spark_messages = _CLASS.findall(text)
    first = (
        spark_messages[-1]
        if spark_messages
        else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    )
    cause = _first_cause(error)
    return PipelineFailed(type(error).__name__, f"{first} ({cause})" if cause and cause not in first else first)


def _first_cause(error: Exception) -> str | None:
    """Return the exception of the JVM that began it all, such as a full disk below a failed write."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(MOST_CAUSES):
        cause = thrown.getCause() if thrown is not None else None
        if cause is None:
            break
        thrown = cause
    return str(thrown.toString()).partition("\n")[0][:MOST_CHARACTERS] if thrown is not None else None
