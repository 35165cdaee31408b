"""Loading and serving of pushed models. This package imports neither TFX nor Beam."""
