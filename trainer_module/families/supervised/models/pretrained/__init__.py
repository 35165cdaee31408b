"""Networks of pictures that others have trained: tf_keras.applications with their weights."""
