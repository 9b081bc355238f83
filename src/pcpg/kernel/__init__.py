"""Values and visits over landmarks, for fits to kept data."""
