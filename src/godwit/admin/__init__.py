"""Looking after queues by hand: dead letters, pauses, drains, purges.

Modules:

    dead_letters    DeadLetterQueueHandler: list, inspect, replay, edit, discard what was given up on
    letter_filter   which dead letters are meant, and what each of them died of
    letter_pages    reading dead letters page by page in bounded memory
    edits           a dead letter's message, changed, under an id that makes repeating safe
    patterns        failure patterns, counted, and a watch that says when one grows
    token_bucket    a token bucket: not faster than so many a second
    control         pausing, draining, resuming and purging queues for all processes
"""
