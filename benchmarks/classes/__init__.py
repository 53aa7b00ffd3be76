"""Rare classes: what weights and class probabilities cost and bring."""
