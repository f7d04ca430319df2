"""Marks: what of a message its arrival in the journal carries, so that tenants and business cases can be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message

LONGEST_VALUE: Final = 256
"""Of a longer value the journal has so many characters."""


def with_attributes(envelope: Envelope, attributes: Mapping[str, str], names: Sequence[str]) -> Envelope:
    """Return an envelope with those of its message's attributes that its queue wants in the journal."""
    chosen = {name: attributes[name][:LONGEST_VALUE] for name in names if name in attributes}
    if not chosen:
        return envelope
    return msgspec.structs.replace(envelope, journal_attributes=msgspec.json.encode(chosen).decode())


def marked_like(envelope: Envelope, message: Message, former: Envelope) -> Envelope:
    """Return the envelope of a message that takes another one's place, with the same attributes in the journal."""
    if former.journal_attributes is None:
        return envelope
    names = msgspec.json.decode(former.journal_attributes, type=dict[str, str])
    return with_attributes(envelope, message.attributes, list(names))
