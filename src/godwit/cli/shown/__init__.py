"""The output of commands, for people and for scripts.

Modules:

    output            stdout and stderr: results, remarks, JSON, errors
    quantities        numbers, sizes and durations as text
    delivery          a pulled message
    dead_letters      dead letters and failure patterns
    message_status    the status of a message in every group
    schedules         schedules and firings
    log_lines         log lines of commands that run for long
"""
