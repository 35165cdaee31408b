"""A test of scheduled retraining under adverse conditions, over simulated months.

`days` chooses the data of each day and the fault of each night by a seed. `troubles` causes faults,
such as kills and full disks. `checks` contains the invariants to check after each night. `python -m
tools.chaos` runs the test.
"""
