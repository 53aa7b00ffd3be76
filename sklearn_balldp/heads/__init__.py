"""What is released: classifier heads whose parameters carry calibrated Gaussian noise."""
