"""Sections of a config that are about the pipeline; those of the model are in trainer_module."""
