"""Whether data can be learned from; each rule raises a DataError that says what to change."""
