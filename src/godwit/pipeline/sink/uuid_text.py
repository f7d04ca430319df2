"""UUIDs of thousands of rows as one text, without a Python object per UUID."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Final
from zlib import crc32

import numpy as np

from godwit.core.schedule.schedules import IDS, NEAR

WIDTH: Final = 36
_HASH_BYTES: Final = 20
_UUID_BYTES: Final = 16
_SIEVE_BITS: Final = 22
_PIECES: Final = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


def uuid5_texts(digests: Sequence[bytes]) -> np.ndarray:
    """Return what `uuid.uuid5` makes of SHA-1 digests as a matrix with a row of 36 characters per UUID."""
    raw = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _HASH_BYTES)[:, :_UUID_BYTES].copy()
    raw[:, 6] = raw[:, 6] & 0x0F | 0x50
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return _texts(raw)


def campaign_texts(campaign: str, keys: Sequence[bytes]) -> np.ndarray:
    """Return what `core.schedule.campaign_ids` makes of keys that end in ASCII, as such a matrix."""
    name = f"campaign\0{campaign}\0".encode()
    begun, seed = IDS.bytes + name, crc32(name)
    digests = [sha1(begun + key, usedforsecurity=False).digest() for key in keys]
    raw = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _HASH_BYTES)[:, :_UUID_BYTES].copy()
    near = np.array([crc32(key[:-NEAR], seed) for key in keys], ">u4")
    raw[:, :4] = near.view(np.uint8).reshape(-1, 4)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x80
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return _texts(raw)


def uuid_texts(raw: bytes) -> np.ndarray:
    """Return UUIDs of 16 bytes each, concatenated, as such a matrix."""
    return _texts(np.frombuffer(raw, np.uint8).reshape(-1, _UUID_BYTES))


def _texts(raw: np.ndarray) -> np.ndarray:
    digits = np.frombuffer(raw.tobytes().hex().encode(), np.uint8).reshape(len(raw), 2 * _UUID_BYTES)
    matrix = np.full((len(raw), WIDTH), ord("-"), np.uint8)
    for dashes, (start, end) in enumerate(_PIECES):
        matrix[:, start + dashes : end + dashes] = digits[:, start:end]
    return matrix


class UuidFilter:
    """Removes most UUIDs that are not among known ones, in a few nanoseconds each; UUIDs are 16 bytes here."""

    def __init__(self, known: bytes) -> None:
        self._marked = np.zeros(1 << _SIEVE_BITS, bool)
        self._marked[_end_bits(known)] = True

    def possible(self, raw: bytes) -> bytes:
        """Return the UUIDs that may be known: all known ones and few others."""
        passed: bytes = np.frombuffer(raw, np.uint8).reshape(-1, _UUID_BYTES)[self._marked[_end_bits(raw)]].tobytes()
        return passed


def _end_bits(raw: bytes) -> np.ndarray:
    """Return some bits of each UUID's end as a number; the end is random in UUIDs of all kinds."""
    return np.frombuffer(raw, ">u4")[3::4] & ((1 << _SIEVE_BITS) - 1)


def surround(before: bytes, matrix: np.ndarray, behind: bytes) -> list[bytes]:
    """Return each text with the same bytes before and after it."""
    width = len(before) + matrix.shape[1] + len(behind)
    whole = np.empty((len(matrix), width), np.uint8)
    whole[:, : len(before)] = np.frombuffer(before, np.uint8)
    whole[:, len(before) : width - len(behind)] = matrix
    whole[:, width - len(behind) :] = np.frombuffer(behind, np.uint8)
    text = whole.tobytes()
    return [text[start : start + width] for start in range(0, len(text), width)]


def as_strings(matrix: np.ndarray) -> list[str]:
    """Return each text as a string."""
    width, text = matrix.shape[1], matrix.tobytes().decode("ascii")
    return [text[start : start + width] for start in range(0, len(text), width)]
