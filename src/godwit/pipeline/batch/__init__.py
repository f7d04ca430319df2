"""A batch of the journal: read once, published once by all parts of a pipeline.

Modules, in the order of a run:

    start_position    the position a pipeline continues at
    journal_input     the journal rows of a run, or partial sums of them
    parts             the parts of a batch: analytics, lake and the protocol of all
    rollup            rolls partial sums up on the driver
    publisher         prepares all parts and publishes them in one transaction
    catch_up          publishes everything there is now, without a streaming query
"""
