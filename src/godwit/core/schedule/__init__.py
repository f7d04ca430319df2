"""Schedules: rules that recur, and the firings they give.

Modules:

    schedules          schedules and firings as values, and the ids of firings
    rules              what can be scheduled, when it fires, what a late scheduler makes up for
    cron               cron expressions, read once and asked for the next local time
    times              when an expression fires in a zone, with Debian cron's rules where clocks jump
    zones              a zone's offset at an instant and the next change of it
    minute_statuses    CREATED, QUEUED, SENDING, SENT, FAILED as projections of a firing and its message
"""
