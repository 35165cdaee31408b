"""The run of a pipeline on this machine: execution, progress, plan and report."""
