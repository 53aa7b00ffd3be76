"""What a release costs: calibration, sensitivity, noise and the public record of a fit."""
