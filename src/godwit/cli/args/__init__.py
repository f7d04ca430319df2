"""Options and arguments of the command line, read and checked.

Modules:

    options           options that several commands share
    values            parsers of values: durations, instants, numbers, pairs
    connection        the broker and the store that options and configuration name
    actor             who works with the command line, as the journal names it
    payload_lines     payloads from a file or a pipe, checked before the first is published
    letter_filter     the options that select dead letters
    manager_target    the manager that `module:name` names
    confirmation      the question before something is deleted for good
    command_group     commands that have subcommands
"""
