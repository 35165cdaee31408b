"""What is told and kept of a run while it goes on."""
