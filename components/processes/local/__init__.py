"""Tasks as processes of this machine."""
