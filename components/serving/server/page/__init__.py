"""The page at `/`: a form for predictions."""
