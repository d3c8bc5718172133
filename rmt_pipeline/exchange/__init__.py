"""Parts from one server to another over HTTP (spec §12)."""
