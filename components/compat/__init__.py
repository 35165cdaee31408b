"""The only modules that use private parts of TFX, its libraries, Beam and uvicorn."""
