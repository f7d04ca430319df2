"""How queues and copies are named and written on the server.

Modules:

    keys              the names of the keys, one hash tag per queue and partition
    queue_config      a queue's settings at one version, with the keys and limits scripts need
    queue_list        the names of declared queues, and of removed ones that still have rows
    catalog           queues and their settings by version; declaring and removing
    codec             how messages and arrivals' journal rows are written on the server
    partitions        which partition has a message, also while a queue is growing
    repartition       ends the time in which a grown queue looks at where keys were before
    compact_chunks    chunks of the journal as the fast scripts store them, written out when they are read
"""
