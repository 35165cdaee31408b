"""What a model uses and where it is wrong: curves, importances, effects and worst examples."""
