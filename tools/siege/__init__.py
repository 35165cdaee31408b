"""Besieges a server: hostile requests, damaged versions and kills, while clients go on asking.

`models` makes what is served, `server` starts it under the memory limit of the shipped manifest,
`load` has clients ask and their answers compared; `hostile`, `versions` and `kills` are attacks,
each kind a function in a registry; `play` plays and judges them. `make siege` does all of it.
"""
