"""Preprocessing, models, training and export: the code that runs inside Transform and Trainer."""

import os

# Read when TensorFlow is first imported: legacy Keras works with every tf.distribute strategy.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# Read when ONNX Runtime is first imported: by default it sends data of models to Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
