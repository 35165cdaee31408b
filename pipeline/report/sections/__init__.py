"""The sections of the report. Each module makes one section, or None if the run has no content."""
