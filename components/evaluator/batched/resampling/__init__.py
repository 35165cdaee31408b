"""How far metrics may be off by chance: a paired bootstrap over the examples of an evaluation."""
