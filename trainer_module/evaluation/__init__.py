"""Models evaluated while and after they train; and the answers that exports must give."""
