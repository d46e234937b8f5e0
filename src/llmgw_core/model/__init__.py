"""What an operator asks for, as frozen values that are valid once they exist."""
