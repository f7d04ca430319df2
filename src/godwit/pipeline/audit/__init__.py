"""The audit: follows every copy from arrival to end, and keeps the open ones from batch to batch.

Modules, in the order of an audit; the transforms are `transforms.audit` and `transforms.audit_findings`:

    copy_lifecycle    which events are steps of a copy, and which state each leads to
    row_columns       columns of rows as NumPy arrays
    interruptions     purges, removals and gaps: what comes next for each step of a copy
    drop_completed    drops completed copies from the rows before they are followed
    coverage          which rows of which journals were followed, and what cannot be known
    overview          the contents of a batch on the driver
    set_back          journals that the broker set back under the same epoch
    part              the audit as a part of a batch, with its datasets in the lake
    broker_copies     the broker's own listing of its copies, as a table
    verdict           the verdict, what it covers, and the chain of all verdicts
"""
