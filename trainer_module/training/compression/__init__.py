"""What makes a network smaller while it is trained: weights pruned, or trained for 8 bits."""
