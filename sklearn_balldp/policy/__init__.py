"""What is protected: which substitutions of one record are adjacent."""
