"""The records of a pipeline's runs: the event log, summaries and notifications."""
