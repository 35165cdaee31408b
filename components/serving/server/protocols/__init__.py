"""What requests ask and how answers are written, by TF Serving's REST API and Open Inference v2."""
