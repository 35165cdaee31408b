"""The inference of the types of columns, and the encoding of columns as lists for tf.Examples."""
