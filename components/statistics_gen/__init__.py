"""TFX's StatisticsGen, with a check that the statistics cover every row."""
