"""What a run would do, and what its data looks like before TFX is imported."""
