"""The journal: the ordered record of every transition, and the state that follows from it.

Modules, from a row to the state tables:

    vocabulary          events and the fields of their rows
    chunks              rows packed into chunks: the header, encoding and decoding
    rows                one builder for the row of each event
    shards              shards, positions in them, and the numbers of their messages
    queue_time          the time of a queue and its journal, which goes on when the clock went back
    limits              what a row may hold, checked before it is recorded
    external_journal    the port of a store that keeps the journal of a broker that cannot
    lifecycle           the states of a message in a group and the moves between them
    statuses            the status words of the state tables, and what `mq.status` returns
    projection          the live state of queues, folded from rows
    changes             the changes that a piece of the journal makes in the state tables
    batches             many transitions coalesced into one change per copy
    resync              a new start from a list of copies, where the journal does not reach
"""
