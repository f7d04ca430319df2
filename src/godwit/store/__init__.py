"""Where schedules, configuration, history and effects live: PostgreSQL, or the broker's own SQLite file.

Modules:

    contract       the store port: one small port per job
    urls           from a URL to a store
    effects        the ports for effects that happen once and messages that leave with a transaction
    sql_files      SQL in files: statements by name, migrations by number
    chunks         chunks of a kept journal, put together when they are read
    bodies         what the state tables keep of a message's body, as JSON that a database takes
    state_rows     copies and messages as rows of the state tables
    schedule_rows  schedules and firings as rows, in the form that a database has for instants and ids
    status         from rows of the state tables to a message's status
    pipelines      what makes a pipeline's results count once: the port and its checks
    journal_tail   what the journal tells of a message beyond what is recorded
    schedules      the port of schedules: rules that recur, firings that are due, campaigns
    plans          the port of plans: a campaign made exactly what the newest plan says
    driver_connections   the driver's connection below what an application holds
"""
