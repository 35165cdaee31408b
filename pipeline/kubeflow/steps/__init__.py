"""What the containers of a run do: begin, run one TFX node each, conclude."""
