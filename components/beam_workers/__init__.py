"""Beam on all cores of this machine: a runner whose workers are forks of the run."""
