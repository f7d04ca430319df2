"""Messages due later, or again and again.

Modules:

    scheduler   `MessageScheduler`: the calls of an application
    one_off     messages due once, kept in the store until their time is near
    recurrence  schedules that recur: adding, changing, and taking back what a change makes void
    campaigns   many messages with a key and a time each, loaded and cancelled together
    ticker      each tick plans what recurs, sends what is due soon, and sweeps up after the dead
    sender      from a claimed firing to a published message, and the note of it
    recovery    whether a broker already has what a dead scheduler may have published
    health      when each scheduler last ticked, and how much is overdue
    lateness    planned times beside actual ones, and what was missed
"""
