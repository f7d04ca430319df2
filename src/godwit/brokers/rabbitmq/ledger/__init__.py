"""The ledger: what RabbitMQ cannot keep, in one SQLite file for all processes of a machine."""
