"""Predictions for the rows of files on Beam, for what outgrows a machine."""
