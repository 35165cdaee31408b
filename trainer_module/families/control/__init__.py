"""Control of an environment: a policy that deep Q-learning learns from rewards."""
