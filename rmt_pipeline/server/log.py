"""Log lines for people, on standard error."""

import logging
import sys
from typing import Any

import structlog

Log = structlog.stdlib.BoundLogger


def set_up_log(*, debug: bool) -> None:
    """Set up logging, once for each process. What libraries log has the same form, and is shown
    from WARNING on.
    """
    out = sys.stderr
    timestamp = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        timestamp,
    ]
    console = structlog.dev.ConsoleRenderer(
        colors=out.isatty(), pad_event_to=0, pad_level=False, sort_keys=False
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, console],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("rmt_pipeline").setLevel(logging.DEBUG if debug else logging.INFO)
    # When an answer breaks off, we report it ourselves, with the part.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


def get_log(name: str) -> Log:
    """The logger of one part of the server. `name` comes after `rmt_pipeline.` in each line."""
    log: Log = structlog.stdlib.get_logger(f"rmt_pipeline.{name}")
    return log
