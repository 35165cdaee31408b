"""TFX's StatisticsGen, with statistics that cover every row."""
