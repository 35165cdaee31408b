"""A pushed model behind HTTP: TF Serving's REST API and the Open Inference Protocol v2."""
