"""Pure functions from DataFrame to DataFrame.

Modules:

    analytics           reduces rows to sums by minute, group and histogram bucket
    audit               follows copies from step to step: finds doubled and out-of-order ones
    audit_findings      compares open copies with a listing and the time: finds lost and stuck ones
    condition_column    converts a condition to a Spark column
    ids                 ids derived from a row's content
    plan                plans the messages of users within a horizon
    replay              selected rows as messages that can be sent again
    report_tables       the tables of a report
    views               the tables messages and deliveries for SQL
"""
