"""The commands about messages that are due later.

Modules:

    schedule     `godwit schedule`: add, list, show, preview, pause, resume, cancel
    bulk         `godwit schedule load` and `campaign`: many messages at once
    scheduler    `godwit scheduler`: publish scheduled messages when they are due
"""
