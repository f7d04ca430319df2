"""Commands of `manage.py`.

Modules:

    godwit   the `godwit` command with the project's broker, store and consumers
"""
