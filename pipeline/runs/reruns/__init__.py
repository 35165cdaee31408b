"""Whether a run would repeat the last one, found out before TFX is imported."""
