"""The commands of `pcpg`: each is a frozen dataclass whose fields are the flags, called with a console.

What needs JAX is imported where it is used: help and mistakes answer at once.
"""
