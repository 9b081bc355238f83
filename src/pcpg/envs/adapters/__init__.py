"""Other people's environments: Gymnasium's, dm_env's (bsuite) and gymnax's, by name or from a Python function.

Nothing here is imported before such an environment is asked for.
"""
