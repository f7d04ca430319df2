"""The commands of `godwit pipeline`, one module each.

Modules:

    command     `godwit pipeline`: its commands put together
    options     options that these commands share
    progress    batches and work in progress on the terminal; SIGTERM as an interrupt
    run         `godwit pipeline run`, `analytics` and `archive`
    audit       `godwit pipeline audit`: whether anything was lost, doubled, stuck or out of order
    report      `godwit pipeline report`: in the terminal, as JSON, as one page
    plan        `godwit pipeline plan`: who gets which message on which day
    replay      `godwit pipeline replay`: messages of the past, sent again
    sql         `godwit pipeline sql`: ad-hoc questions over the journal
    status      `godwit pipeline status`: positions, lag, last batch
    forget      `godwit pipeline forget`: release a pipeline's hold on the journal
"""
