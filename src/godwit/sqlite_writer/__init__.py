"""A way to write a SQLite file that several processes share: broker, store and RabbitMQ ledger.

A thread carries out steps in the order they come, several per commit, while it holds a lock beside the file. What is
particular to an owner comes in: how its file is opened, what its steps work with, and its errors.

Modules:

    writer            steps of one event loop: queued, or brief enough to be carried out there
    writer_thread     the thread, the file lock and the connection, for callers of any thread
    transactions      several steps in one transaction, one step's error undone without the others
    call              a step, who waits for it and how it ended
    write_ahead_log   the log: onto the disk for durable steps, into the file by the owner's rules
    file_lock         the writers' queue beside a file, in the kernel
    connection        connections with our settings; what is no database is refused untouched
    errors            the troubles a file can have, and the table that makes them the owner's errors
    location          the file systems that are refused
"""
