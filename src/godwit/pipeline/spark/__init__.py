"""Spark itself and what a job holds while it runs.

Modules:

    session           starts and ends Spark, quietly and in a folder of its own
    process_session   a session that lasts as long as its process, for notebooks
    jvm               the JVM: started within a deadline, killed when it does not stop
    run_folder        the folder of one run, removed however the run ends
    cores             the number of processors this process may use
    errors            translates Spark's errors to Godwit's
    worker_gc         cheaper garbage collection in Spark's Python workers
    connections       the broker and the store of a job, callable from any thread
    sync_broker       a broker called from synchronous code in one thread
    metrics           Spark's progress as Prometheus metrics
    metrics_server    these metrics over HTTP
"""
