"""What runs inside Transform and Trainer: preprocessing, models, training and export."""

import os

# Read when TensorFlow is first imported: legacy Keras works with every tf.distribute strategy.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# Read when ONNX Runtime is first imported: else it sends Microsoft what it knows of models.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
