"""Learners as pure functions."""
