"""Messages: what an application publishes, how it is sealed for a broker, and the rules that look into it.

Modules:

    message       a message as applications see it: immutable, JSON on the wire
    envelope      a message sealed for transport: the facts a broker needs, the body it never looks into
    marks         what of a message its arrival in the journal carries: the attributes that its queue names
    checks        checks of a message's fields: size, type, and what JSON would change
    payload_types  types of payloads, checked and converted: msgspec, dataclasses, pydantic 2
    schemas       the shape of payloads of a message type, checked by producer and worker
    conditions    CEL conditions on messages: compiled once, shown only the fields they name
    routing       which queue a message goes to, and why; filters of groups, transforms of queues
"""
