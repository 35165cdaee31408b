"""A Beam runner that uses all cores of this machine: its workers are forks of the run."""
