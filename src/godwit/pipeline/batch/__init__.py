"""A batch of the journal, read once and published once by all parts of a pipeline."""
