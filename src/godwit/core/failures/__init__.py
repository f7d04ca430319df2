"""Failures: what can go wrong with a message, and what becomes of it afterwards.

Modules:

    failure      what can go wrong with a message, and which failures are the same
    judgement    what the end of a handler means: errors judged by type and code
    retry        when to try again, as pure rules
    breaker      the circuit breaker's rules
"""
