"""Example generation: CSV, Parquet, TFRecord, image folders and IDX to tf.Examples, in splits."""
