"""Loading and serving of pushed models; imports neither TFX nor Beam."""
