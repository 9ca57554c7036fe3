"""Fairness between owners: shares of a capacity, and the order of turns (docs/fairness.md)."""
