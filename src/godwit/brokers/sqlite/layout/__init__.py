"""How queues, messages, copies and leases lie in the tables of the file.

Modules:

    file           the broker's file: its schema, its rules for the log, its errors
    step           one step: what it loaded and changed, its journal chunks, whom it wakes
    rows           queues and groups as rows
    run_plan       how a chunk is laid out in runs, before anything is written
    runs           messages stored together, written once
    ids            dedup windows, and the way from an id to its message
    copies         copies with rows of their own and the places they wait in
    leases         leases in blocks, one row per pull
    arrival_rows   journal rows of arrivals, cooked from runs
    recount        the counters of groups compared with what is stored, and mended
"""
