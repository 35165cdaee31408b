"""What a certificate keeps, and whether a version still keeps to it."""
