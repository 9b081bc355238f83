"""Bonuses for novelty, one file each."""
