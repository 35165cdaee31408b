"""Every touch of the insides of TFX, its libraries and Beam: a module for each of them."""
