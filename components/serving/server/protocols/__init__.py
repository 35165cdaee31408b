"""The protocols of prediction requests: TF Serving's REST API and Open Inference v2."""
