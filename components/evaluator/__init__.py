"""The Evaluator: TFX's measurements, further metrics, and the baseline that a model has to beat."""
