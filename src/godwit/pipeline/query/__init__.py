"""Queries over the lake and the journal behind it.

Modules:

    condition    the grammar of conditions that select rows
    history      the rows of lake and journal as one table
"""
