"""Schedules, plans and campaigns in PostgreSQL.

Modules:

    schedules      schedules in PostgreSQL: claims by SKIP LOCKED
    campaigns      campaigns into PostgreSQL: COPY straight into the table, merged where part of it was there
    first_plan     a campaign's first plan into PostgreSQL: columns by COPY, by several tasks at once
    copy_columns   columns of Arrow as rows of COPY
    plans          plans in PostgreSQL
"""
