"""The pages about runs: the report, the model card and the comparison."""
