"""Rules of prediction: what follows from released and public numbers. They see no record."""
