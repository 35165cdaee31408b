"""Pictures: folders of them, and files that a table names."""
