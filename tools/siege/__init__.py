"""A robustness test of the server: hostile requests, damaged versions and kills under load.

`models` trains the served models, `server` starts the server with the memory limit of the shipped
manifest, and `load` runs clients and compares their answers. `hostile`, `versions` and `kills`
contain attacks, a registered function for each kind; `play` runs and judges them. `make siege` runs
the whole test.
"""
