-- No broker hands its dead letters to the store: each keeps its own, RabbitMQ in its ledger (decision 0016).

DROP TABLE kept_letters;
