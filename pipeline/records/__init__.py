"""The records of runs: event log, metadata, summaries and notifications."""
