"""What one server remembers on its own disk: whose directory it is, and its tables.

    <data>/server.json                       whose directory this is
    <data>/metadata/.version                 changes with every change below
    <data>/metadata/<database>/<table>.json  one table's definition
    <data>/metadata/<database>/<table>.detached   a detached table's, until the server starts
    <data>/metadata/<database>/<table>.permanent  a detached table's, until it is attached
    <data>/metadata/<database>/<table>.dropping   a table whose DROP has not ended
    <data>/metadata/.dropped/<uuid>.json      a table that was dropped and is to be removed later
    <data>/metadata/<database>.replicated    where a Replicated database is (`replicated`)
    <data>/metadata/.renaming  several files that change as one (`journal`)
    <data>/data/<database>/<table>/          the table's parts (`rmt_pipeline.store`)

A database is its directory. Several processes use one catalog at the same time (the server,
`rmt sql`, Dagster's runs): each change is one rename, link or unlink, so a reader sees the
state before it or after it. Names are escaped as the original does for its files, so no name
can leave the directory or meet one of the names above.
"""
