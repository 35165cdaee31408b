"""The sections of a config about the pipeline; sections about the model are in trainer_module."""
