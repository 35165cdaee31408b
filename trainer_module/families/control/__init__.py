"""What to do in an environment: a policy that is learnt from its rewards, by deep Q-learning."""
