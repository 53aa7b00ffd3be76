"""What still leaks: certificates against reconstruction by an informed adversary."""
