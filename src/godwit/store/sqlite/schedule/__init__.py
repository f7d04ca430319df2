"""Schedules, plans and campaigns in a SQLite file.

Modules:

    schedules   schedules in a SQLite file: claims by immediate transactions
    campaigns   campaigns into a SQLite file: many rows a statement, in the order of their ids
    plans       plans in a SQLite file
    rows        schedules and firings as rows of SQLite
"""
