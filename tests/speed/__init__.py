"""Speed as a promise: the floors of the benchmarks hold."""
