"""Standard differential privacy on image features, beside figures that people know."""
