"""The HTTP server of a pushed model: TF Serving's REST API and the Open Inference Protocol v2."""
