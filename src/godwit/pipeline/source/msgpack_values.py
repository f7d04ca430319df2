"""MessagePack values read at many byte offsets at once: one numpy step for ten thousand values.

Only the types in journal rows are known: null, whole numbers, texts and bytes. Any other value raises `Unexpected`, and
the caller decodes value by value instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

ByteOffsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

NIL: Final = 0xC0
FEW: Final = 0x90
"""Begins an array of up to 15 values, whose number is added to it."""
MANY: Final = 0xDC
"""Begins an array of up to 65,535 values, whose number follows in two bytes."""
MOST: Final = 0xDD
_FEW_VALUES: Final = 16
_PADDING: Final = bytes(16)
"""Follows the data, so that eight bytes can be read anywhere."""


class Unexpected(Exception):
    """A value that this module does not read; `row_decoder` may know it."""


# What the first byte of a value says about it.
_NULL, _UNSIGNED, _SIGNED, TEXT, BYTES, _UNKNOWN = range(6)
_KIND: Final = np.full(256, _UNKNOWN, np.uint8)
_HEAD: Final = np.zeros(256, np.int64)  # bytes of a number, or those before a text; 0: a value that is not known here
_AHEAD: Final = np.ones(256, np.int64)  # where the number, or that of a length, begins
_SHIFT: Final = np.full(256, 56, np.uint64)  # brings eight bytes down to that number
_SIZE: Final = np.zeros(256, np.int64)  # of the whole value
_COUNTED: Final = 1 << 40  # is part of the size of texts whose length is a number of its own
_LARGEST: Final = np.uint64(2**63 - 1)
for _first, _end, _kind in ((0x00, 0x80, _UNSIGNED), (0xA0, 0xC0, TEXT), (NIL, NIL + 1, _NULL), (0xE0, 0x100, _SIGNED)):
    _KIND[_first:_end] = _kind
    _HEAD[_first:_end] = _SIZE[_first:_end] = 1
    _AHEAD[_first:_end] = 0
_SIZE[0xA0:0xC0] += np.arange(32)  # the length of a short text is part of its first byte
for _first, _kind, _widths in (
    (0xC4, BYTES, (1, 2, 4)),
    (0xCC, _UNSIGNED, (1, 2, 4, 8)),
    (0xD0, _SIGNED, (1, 2, 4, 8)),
    (0xD9, TEXT, (1, 2, 4)),
):
    for _place, _width in enumerate(_widths, _first):
        _KIND[_place] = _kind
        _HEAD[_place] = 1 + _width
        _SIZE[_place] = 1 + _width + (_COUNTED if _kind in (TEXT, BYTES) else 0)
        _SHIFT[_place] = 64 - 8 * _width


class MsgpackValues:
    """Bytes that hold MessagePack values."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.data = b"".join((*pieces, _PADDING))
        self.size = len(self.data) - len(_PADDING)
        self.bytes = np.frombuffer(self.data, np.uint8)
        self._words = np.ndarray((self.size + 8,), ">u8", buffer=self.data, strides=(1,))

    def first(self, places: ByteOffsets) -> Bytes:
        """Return the first byte of each value; offsets beyond the end give an unknown one."""
        return self.bytes.take(places, mode="clip")

    def ends_of(self, places: ByteOffsets) -> ByteOffsets:
        """Return where the next values begin; the same offset where a value is unknown."""
        first = self.first(places)
        sizes = _SIZE.take(first)
        if sizes.max(initial=0) >= _COUNTED:
            some = np.flatnonzero(sizes >= _COUNTED)
            sizes[some] += self._unsigned(places[some], first[some]).view(np.int64) - _COUNTED
        return places + sizes

    def numbers(self, places: ByteOffsets) -> tuple[ByteOffsets, Flags | None]:
        """Return whole numbers, and which of them are present when some are null."""
        first = self.first(places)
        if first.max(initial=0) < NIL // 2:
            return first.astype(np.int64), None
        kinds = _KIND.take(first)
        highest = kinds.max()
        if highest > _SIGNED:
            raise Unexpected
        values = self._unsigned(places, first)
        signed = kinds == _SIGNED if highest == _SIGNED else None
        there = kinds != _NULL if kinds.min() == _NULL else None
        if values.max() > _LARGEST and (values[kinds == _UNSIGNED] > _LARGEST).any():
            raise Unexpected
        if signed is None:
            return values.view(np.int64), there
        below = self._word(places, first).view(np.int64) >> _SHIFT.take(first).view(np.int64)
        return np.where(signed, below, values.view(np.int64)), there

    def texts(self, places: ByteOffsets, kind: int) -> tuple[ByteOffsets, Flags | None]:
        """Return where texts (or bytes, by `kind`) begin, and which are present when some are null."""
        first = self.first(places)
        there = _KIND.take(first) == kind
        begins = places + _HEAD.take(first)
        if there.all():
            return begins, None
        if not (there | (first == NIL)).all():
            raise Unexpected
        return begins, there

    def lengths(self, places: ByteOffsets) -> tuple[ByteOffsets, ByteOffsets]:
        """Return how many values arrays hold and where the first of them begins."""
        first = self.first(places)
        few = (first & 0xF0) == FEW
        if few.all():
            return (first & 0x0F).astype(np.int64), places + 1
        words = self._words[np.minimum(places + 1, self.size)].astype(np.uint64)
        many, most = first == MANY, first == MOST
        if not (few | many | most).all():
            raise Unexpected
        counts = np.where(few, first & 0x0F, words >> np.where(many, 48, 32).astype(np.uint64)).astype(np.int64)
        return counts, places + np.where(few, 1, np.where(many, 3, 5))

    def rows(self, begin: int, end: int, values: int, count: int) -> list[ByteOffsets]:
        """Return the offsets of the values of `count` arrays of `values` values that fill a stretch, and their ends.

        The beginnings are guessed from the bytes that begin such an array, and proven by what follows: the first array
        begins with the stretch, each other one where its predecessor ends, and the last one ends with the stretch.
        """
        beginnings, inside = self._candidates(begin, end, values)
        places = [inside]
        for _ in range(values):
            places.append(self.ends_of(places[-1]))
        behind = places[-1]
        if len(beginnings) != count:
            ends = np.zeros(end + 1, np.bool_)
            ends[behind[behind <= end]] = True
            ends[begin] = True
            real = ends[beginnings]
            beginnings, places = beginnings[real], [offsets[real] for offsets in places]
            behind = places[-1]
        whole = len(beginnings) == count and beginnings[0] == begin and behind[-1] == end
        if not whole or not np.array_equal(behind[:-1], beginnings[1:]):
            raise Unexpected
        return places

    def _candidates(self, begin: int, end: int, values: int) -> tuple[ByteOffsets, ByteOffsets]:
        """Return offsets that look like beginnings of arrays, and the offsets of their first values."""
        stretch = self.bytes[begin:end]
        if values < _FEW_VALUES:
            beginnings = np.flatnonzero(stretch == FEW + values) + begin
            inside = beginnings + 1
        else:
            beginnings = np.flatnonzero(stretch == MANY) + begin
            beginnings = beginnings[
                (self.bytes[beginnings + 1] == values >> 8) & (self.bytes[beginnings + 2] == values & 0xFF)
            ]
            inside = beginnings + 3
        if values and len(beginnings):
            first = self.first(inside)
            kinds = _KIND.take(first)
            if kinds[0] != _NULL:
                likely = (kinds == kinds[0]) | (kinds == _NULL)
                beginnings, inside = beginnings[likely], inside[likely]
        return beginnings, inside

    def _word(self, places: ByteOffsets, first: Bytes) -> npt.NDArray[np.uint64]:
        words: npt.NDArray[np.uint64] = self._words[np.minimum(places + _AHEAD.take(first), self.size)].astype(
            np.uint64
        )
        return words

    def _unsigned(self, places: ByteOffsets, first: Bytes) -> npt.NDArray[np.uint64]:
        values: npt.NDArray[np.uint64] = self._word(places, first) >> _SHIFT.take(first)
        return values
