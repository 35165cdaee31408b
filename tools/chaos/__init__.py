"""Throws at scheduled retraining what months bring, and checks each night that it holds.

`days` draws from a seed what each day brings and each night suffers, `troubles` makes nights hard,
`checks` says what has to hold whatever happened. `python -m tools.chaos` plays it.
"""
