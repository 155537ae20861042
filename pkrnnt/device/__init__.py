"""DEVICE: an int8 model as C sources for a microcontroller, proof that they run, and what they cost."""
