"""How a network is trained: what runs its steps, what happens around them, and what is kept."""
