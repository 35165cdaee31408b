"""Transfer learning: a head on a frozen network first, then the network's last layers as well."""
