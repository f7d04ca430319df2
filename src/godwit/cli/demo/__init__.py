"""`godwit demo`: real processes on one SQLite file, one of them killed, and a reconciliation made from outside."""
