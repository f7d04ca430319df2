"""Pulls that wait: one timer per process, and wake-ups between processes.

Modules:

    listeners   waiting for something to pull: one timer per process
    wake        wake-ups between processes by datagram
"""
