"""What a pipeline writes about its runs: the event log, summaries and notifications."""
