"""The words and rules of a message queue, without I/O.

Packages:

    messages     a message, its envelope, its checks, and the rules that choose its queue
    schedule     schedules and firings: expressions, zones, and the times they give
    journal      the journal's rows and chunks, and the state that follows from them
    failures     what a failure is, and what becomes of a message after one
    errors       every error of Godwit, in one tree

Modules:

    names           names of queues and groups, ids, and which of them are allowed
    queues          the specifications of queues and groups
    settings        everything that can be configured, as plain values, and what a queue's type stands for
    shared_keys     the keys of the shared values: every prefix, and how a key is made of names
    limits          limits of instants, durations and counts, the same for every broker and store
    durations       durations as text, the same everywhere
    rate            rates such as `14/s`, and the arithmetic by which many processes share one
    clock           time as a collaborator; the only reader of the wall clock
    background      the supervisor of background tasks: logs, counts and starts again what ended by an error
    periodic        steps that are taken again and again, whatever happens to one turn of them
    tick_phase      one moment in every second for the periodic work of a process
    error_text      the text of an error, whatever its class does when it is shown
    fault_points    named points where a test lets the process die
    logs            structured logs on the standard library
    urls            URLs taken apart the same way on every Python
"""
