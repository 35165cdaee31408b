"""Files of TFRecords: read and written in batches, by TensorFlow's C++."""
