"""The default model of tables compared with scikit-learn, on many tables."""
