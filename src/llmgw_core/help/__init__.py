"""Readers of engines' texts that several plugins share: help texts and last words. Pure and total."""
