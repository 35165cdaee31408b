"""An ExampleValidator whose severe anomalies stop the run."""
