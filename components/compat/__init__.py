"""The only uses of private parts of TFX, its libraries and Beam: a module for each of them."""
