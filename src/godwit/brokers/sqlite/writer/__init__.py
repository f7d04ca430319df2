"""The one thread that writes the file: group commits, locks and the write-ahead log.

Modules:

    writer            who carries out steps when: the writer's thread, or the event loop for brief ones
    calls             a step somebody waits for
    transactions      several calls in one transaction, one call's error undone without the others
    write_ahead_log   the write-ahead log: onto the disk for durable calls, into the file now and then
    connection        opening and checking the file, translating SQLite's errors
    location          which file systems are refused
"""
