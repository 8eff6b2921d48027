"""Checks that run before Ray starts."""
