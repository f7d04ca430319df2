"""Reports about a period of the journal.

Modules; the tables come from `transforms.report_tables`:

    model         the report as a value
    advice        recommendations that a history can honestly give
    error_texts   what was raised, by fingerprint, as dead letters tell it
    simulation    simulates a queue with several slots from a trace
    svg_plots     plots as inline SVG
    html_page     the report as one HTML page
"""
