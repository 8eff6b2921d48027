"""Supervised runs on verl's SFT trainer."""
