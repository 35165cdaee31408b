"""An ExampleValidator that stops the run if it finds severe anomalies."""
