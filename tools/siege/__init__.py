"""A robustness test of the server: hostile requests, damaged versions and kills under load.

`models` trains the served models, `server` starts the server with the memory limit of the shipped
manifest, and `load` runs clients and compares their answers. `hostile`, `versions` and `kills`
contain the attacks, with a registered function for each kind. `play` runs the attacks and checks
the results. `make siege` runs the complete test.
"""
