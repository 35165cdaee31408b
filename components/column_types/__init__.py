"""The types of columns that the config does not declare: how they are chosen, stored in the schema
and passed to Transform and Trainer.
"""
