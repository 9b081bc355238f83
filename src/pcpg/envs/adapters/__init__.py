"""External environments: Gymnasium, dm_env (bsuite) and gymnax, by name or from a Python function.

Nothing here is imported until such an environment is used.
"""
