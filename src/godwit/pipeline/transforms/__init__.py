"""Pure functions from DataFrame to DataFrame.

Modules:

    analytics           reduces rows to sums by minute, group and histogram bucket
    audit               follows copies: finds lost, doubled, stuck and out-of-order ones
    condition_column    converts a condition to a Spark column
    ids                 ids derived from a row's content
    plan                plans the messages of users within a horizon
    replay              selected rows as messages that can be sent again
    report_tables       the tables of a report
    views               the tables messages and deliveries for SQL
"""
