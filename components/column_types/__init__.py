"""The type of each column, where the config does not give it: chosen, kept and handed on."""
