"""The commands of `pcpg`, one file for each: a frozen dataclass whose fields are the flags, called with a console.

What needs JAX is imported where it is used: help and mistakes answer at once.
"""
