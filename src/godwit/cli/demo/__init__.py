"""`godwit demo`: real processes on one SQLite file, one of them killed, and a reconciliation from outside.

Modules:

    command             `godwit demo`: its options, its end and its exit code
    workload            the demo's queues, messages and failures
    runner              starts the processes, kills one worker, reconciles at the end
    processes           the demo's processes: started, suspended, killed, stopped
    publisher           a publisher process
    worker              a worker process
    records             what publishers and workers did, recorded on disk
    journal_tally       counts of the journal's events, and the leases of each worker
    reconciliation      the records compared with journal and stats
    views               the live picture, the plain lines and the final table
    pipeline_summary    the pipeline over the demo's journal, when `--pipeline` asks for it
"""
