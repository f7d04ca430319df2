"""Campaigns: messages planned for users, each at a local time.

Modules; the transform itself is `transforms.plan`:

    definition     a campaign and the horizon it is planned for
    zone_clocks    the local clocks of every time zone within a horizon
    plan_writer    writes a plan's messages to the store from Spark's tasks
"""
