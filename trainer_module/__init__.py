"""Preprocessing, models, training and export: the code that runs inside Transform and Trainer."""

import os

# TensorFlow reads this variable at its first import. Legacy Keras works with every strategy of
# tf.distribute.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# ONNX Runtime reads this variable at its first import. By default, ONNX Runtime sends data about
# models to Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
