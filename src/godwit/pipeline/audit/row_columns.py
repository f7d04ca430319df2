"""Columns of rows as NumPy arrays: a number for each combination of texts, numbers without nulls, milliseconds."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MISSING: Final = -1
MOST_CODES: Final = 1 << 18
"""Combinations of texts are numbered without holes before their numbers exceed this."""


def codes(rows: pa.Table, *names: str) -> np.ndarray:
    """Return a number for each row's values of some text columns, below zero where one is missing."""
    found, most = np.zeros(len(rows), np.int64), 1
    for name in names:
        coded = coded_texts(rows[name])
        texts = looked_up(coded, list(range(len(coded.dictionary))), np.int64)
        most *= max(1, len(coded.dictionary))
        found = np.where((found < 0) | (texts < 0), MISSING, found * len(coded.dictionary) + texts)
        if most > MOST_CODES:
            used, found = np.unique(found, return_inverse=True)
            found = np.where(used[found] < 0, MISSING, found - (used[0] < 0)).astype(np.int64)
            most = len(used)
    return found


def coded_texts(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a text column as indices into its distinct values."""
    return pc.dictionary_encode(column).combine_chunks()


def looked_up(coded: pa.DictionaryArray, values: list[int], kind: type[np.generic]) -> np.ndarray:
    """Return a number for every text, below zero where there is none."""
    indices = pc.fill_null(coded.indices, len(values)).to_numpy(zero_copy_only=False)
    found: np.ndarray = np.array([*values, MISSING], kind)[indices]
    return found


def numbers(column: pa.ChunkedArray | pa.Array, otherwise: int) -> np.ndarray:
    """Return a column's numbers, with `otherwise` where one is missing."""
    found: np.ndarray = pc.fill_null(column.cast(pa.int64()), otherwise).to_numpy()
    return found


def milliseconds(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants as milliseconds since 1970."""
    return pc.cast(pc.cast(instants, pa.timestamp("ms", "UTC"), safe=False), pa.int64())
