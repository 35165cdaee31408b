"""The explanation of an evaluated model: importances, effects, curves and worst examples."""
