"""Publishing: chunks of messages become script calls.

Modules:

    publisher          a chunk becomes one script call
    pipelined          the chunks of one publish on their way, the next while the server works on the one before
    general_command    messages of any kind, as the script takes them that looks at each
    fast_command       messages that are ready at once, as the fast script takes them
    partitioned        publishing to several partitions at once
"""
