"""Looking after queues by hand: dead letters, pauses, drains, purges."""
