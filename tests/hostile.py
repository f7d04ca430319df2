"""Values and errors that try to break the code that handles them."""

from __future__ import annotations

from typing import Any


class OddError(BaseException):
    """An exception of no known kind: not even an Exception."""


class UnshowableError(Exception):
    """An error whose every way of being shown or copied raises."""

    def __str__(self) -> str:
        raise OddError("no text")

    def __repr__(self) -> str:
        raise OddError("no repr")

    def __reduce__(self) -> Any:
        raise OddError("not to be pickled")

    def __getattr__(self, name: str) -> Any:
        raise OddError(f"no {name}")


class TextSubclass(str):
    """A text that is not quite one."""

    __slots__ = ()

    def __getitem__(self, place: Any) -> str:
        raise OddError("not to be cut")


class OddTextError(Exception):
    """An error whose text is hard to carry: a lone surrogate, NUL, a subclass of str, and long."""

    def __str__(self) -> str:
        return TextSubclass("\ud800 \0 " + "x" * 100_000)


class TextOfAnotherTypeError(Exception):
    """An error whose text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - that is the point


HOSTILE_ERRORS = (UnshowableError, OddTextError, TextOfAnotherTypeError, OddError, RecursionError)
