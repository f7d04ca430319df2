"""Rows as messages: the write side of the format `godwit`.

Modules, from Spark's call to the broker:

    writers         the writers of tables and streams; send what was not sent before
    row_messages    converts rows to messages, all checked before the first is sent
    row_template    seals messages that differ only in id and payload, thousands at once
    uuid_text       UUIDs of thousands of rows as one text
    sink_log        the log of messages that a batch has sent, kept in the broker
    table_check     checks a whole table before the first of its rows is sent
"""
