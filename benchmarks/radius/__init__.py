"""Accuracy against the radius, for every head."""
