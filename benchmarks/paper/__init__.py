"""The paper's tables and figures, beside this package's and other libraries' numbers."""
