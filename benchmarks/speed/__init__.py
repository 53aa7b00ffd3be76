"""Times as ratios against what a user would pick instead, measured in turn in one run."""
