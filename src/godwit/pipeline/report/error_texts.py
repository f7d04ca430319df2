"""Texts of failures: the journal has their fingerprints only, dead letters have what was raised."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from godwit.brokers.contract import DeadLetter

MOST_LETTERS: Final = 10_000
MOST_CHARACTERS: Final = 300


async def error_texts(letters: AsyncIterator[DeadLetter], *, most: int = MOST_LETTERS) -> dict[str, str]:
    """Return by fingerprint what was raised, as the errors of the first `most` dead letters say it."""
    texts: dict[str, str] = {}
    looked_at = 0
    async for letter in letters:
        for error in letter.errors:
            if error.fingerprint not in texts:
                texts[error.fingerprint] = f"{error.type}: {error.message}"[:MOST_CHARACTERS]
        looked_at += 1
        if looked_at >= most:
            break
    return texts
