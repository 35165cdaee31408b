"""The default model of tables beside scikit-learn's, over many tables."""
