"""The sections of a config that only `pipeline` reads, and the rules of all sections."""
