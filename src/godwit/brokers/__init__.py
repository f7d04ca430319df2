"""Brokers: the contract and its implementations.

Modules:

    contract          the broker port, its side ports and the eleven promises
    urls              from a URL to a broker
    chunks            how a publish is taken apart, the same way by every broker
    limits            a group's limits, counted the same way by every broker
    listener          a listener in an event loop, without a lost wake-up
    place_listeners   who listens where in one event loop, who is woken first, what is due when
    channel_counts    how often a broker opened and closed connections to its server
    arguments         checks of a call's arguments that all brokers share
"""
