"""Pulls that wait: who waits where, and what wakes them.

Modules:

    listeners          waiting for something to pull: who waits where, and what wakes them
    prefetch           pulls that wait on the server behind the marker, and what they brought until the next pull
    wake_subscriber    hears the markers that wake: one blocking connection per process, in a cluster per slot
"""
