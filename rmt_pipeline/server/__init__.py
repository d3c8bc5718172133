"""The long-lived process of one host: `rmt serve`."""
