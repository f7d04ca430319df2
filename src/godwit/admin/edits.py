"""A dead letter's message, changed by a function, a JSON merge patch or another message, to be published instead of it.

The new id is made from the letter and the new content: repeating an edit after a crash publishes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from godwit.brokers.contract import DeadLetter
from godwit.core.clock import EPOCH
from godwit.core.errors import InvalidMessage, listed
from godwit.core.messages.message import Message, Routing
from godwit.core.names import MessageId

Change = Callable[[Message], Message] | Mapping[str, Any] | Message
"""What becomes of a message: what the function returns, the fields of a merge patch (RFC 7386), or another message."""

_NAMESPACE: Final = UUID("5e1a7d0c-3c0e-5b8e-9a43-60d417de1e77")
_FIXED: Final = frozenset({"id", "created_at", "replay_of"})
_PATCHABLE: Final = tuple(name for name in Message.__struct_fields__ if name not in _FIXED)
_replace = msgspec.structs.replace


def edited(letter: DeadLetter, change: Change, now: datetime) -> Message:
    """Return the message to publish instead of a letter.

    It goes to the letter's group alone, unless the change says otherwise. It is new: due at once, and its time to live
    begins now; what the change says about both holds.
    """
    original = opened(letter)
    changed = _changed(letter, original, change)
    known = original or Message(id=letter.envelope.id, queue=letter.queue, created_at=now)
    moved = changed.queue not in ("", known.queue)
    routing, scheduling, expires_at = changed.routing, changed.scheduling, changed.expires_at
    if routing == known.routing or (isinstance(change, Message) and routing == Routing()):
        routing = Routing() if moved else Routing(consumer_group=letter.group)
    if scheduling is not None and scheduling == known.scheduling:
        scheduling = _replace(scheduling, deliver_at=None)
    if expires_at == known.expires_at:
        expires_at = None
    message = _replace(
        changed,
        queue=changed.queue if moved else letter.queue,
        routing=routing,
        scheduling=scheduling,
        expires_at=expires_at,
        created_at=now,
        replay_of=letter.envelope.id,
    )
    return _replace(message, id=_id_of(letter, message))


def opened(letter: DeadLetter) -> Message | None:
    """Return the message inside, or None when the body is not one of ours."""
    try:
        return letter.envelope.open()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def merged(target: Any, patch: Any) -> Any:
    """Return a JSON value with a merge patch applied: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def check_patch(patch: Mapping[str, Any]) -> None:
    """Refuse a patch of what is no field, or not to be chosen."""
    for name in patch:
        if name not in _PATCHABLE:
            raise InvalidMessage(
                f"patch: {name!r}", "cannot be changed", f"Change some of {listed(_PATCHABLE[:10])}, ordering_key."
            )


def _changed(letter: DeadLetter, original: Message | None, change: Change) -> Message:
    if isinstance(change, Message):
        return change
    if original is None:
        raise InvalidMessage(
            f"dead letter {letter.id}: body", "is not a message", "Replay it as it is, or give a whole new Message."
        )
    if not isinstance(change, Mapping):
        result = change(original)
        if not isinstance(result, Message):
            kind = type(result).__name__
            raise InvalidMessage(
                "the change", f"returned {kind}", "Return a Message made by msgspec.structs.replace()."
            )
        return result
    check_patch(change)
    whole = merged(msgspec.to_builtins(original), change)
    try:
        return msgspec.convert(whole, Message)
    except msgspec.ValidationError as error:
        raise InvalidMessage("patch", f"does not fit ({error})", "Give every field a value of its type.") from None


def _id_of(letter: DeadLetter, message: Message) -> MessageId:
    content = _replace(message, id=letter.envelope.id, created_at=EPOCH)
    digest = blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=20).hexdigest()
    return MessageId(str(uuid5(_NAMESPACE, f"{letter.id} {letter.dead_at_ms} {digest}")))
