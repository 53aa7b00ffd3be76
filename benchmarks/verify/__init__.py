"""What the verifier finds, how often, and how long it takes."""
