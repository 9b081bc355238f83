"""Statistics, figures and pages; reads run folders only and imports no algorithm."""
