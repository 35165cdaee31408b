"""What asks and serves pushed models; imports neither TFX nor Beam."""
