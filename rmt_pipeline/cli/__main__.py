"""`python -m rmt_pipeline.cli` is `rmt`."""

from rmt_pipeline.cli.main import main

if __name__ == "__main__":
    main()
