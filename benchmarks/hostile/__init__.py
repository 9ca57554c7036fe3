"""Attackers beside a well-behaved client of another workspace, on a real service."""
