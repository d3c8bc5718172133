"""What a Dagster project imports to have replicated tables beside its own assets.

`location` puts it together: `replicated_tables(servers, tables)` are the definitions that a code
location merges with its own. One module each for what is in them: `replicas` (assets), `checks`,
`workers` and `clean_up` (jobs), `sensors` (with `watching`), `schedules`, `ledger` (what runs write
down about parts), `engine` and `spark` (resources), `instance` (a new DAGSTER_HOME).

The engine knows nothing of this: of rmt_pipeline only the command line may import it.
"""
