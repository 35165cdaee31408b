"""The first config for data: `scopeline init` looks at the data and proposes every key."""
