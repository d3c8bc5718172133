"""The files of a deployment on several hosts (docs/deploy.md), and its code location."""
