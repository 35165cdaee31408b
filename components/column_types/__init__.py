"""The types of columns that the config does not declare: chosen, stored in the schema, passed
on.
"""
