"""Handlers as applications write them: refused where they cannot work, called with what their parameter asks for.

Modules:

    signature    what a function must look like to handle messages, checked where it is registered
    parameter    handlers whose parameter is a payload's type get payloads converted to it
"""
