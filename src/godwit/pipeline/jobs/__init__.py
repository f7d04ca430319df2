"""A thin job per command.

Modules:

    run       the pipeline itself: batches published by all parts together
    audit     follows the journal, compares open copies with the broker's, returns a verdict
    plan      a campaign's messages, from a table of users to the store
    replay    sends messages of the past again, each once
    report    the report on the history or a period of it
    sql       questions in SQL over lake and live journal
"""
