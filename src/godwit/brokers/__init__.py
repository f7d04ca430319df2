"""Brokers: the contract and its implementations."""
