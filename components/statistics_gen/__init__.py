"""TFX's StatisticsGen, whose statistics are those of every row."""
