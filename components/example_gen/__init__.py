"""Example generation: reads files of several formats and writes tf.Examples in splits."""
