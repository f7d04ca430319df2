"""Benchmarks: each module measures one part against a goal and a floor; `python -m benchmarks NAME` runs it."""
