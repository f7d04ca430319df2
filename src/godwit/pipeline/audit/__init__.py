"""The audit: follows every copy from arrival to end, and keeps the open ones from batch to batch.

Modules; the transform itself is `transforms.audit`:

    copy_lifecycle    which events are steps of a copy, and which state each leads to
    drop_completed    drops completed copies from the rows before they are followed
    part              the audit as a part of a batch, with its datasets in the lake
"""
