"""The one place where the stages meet: bounds, plans, and reading them in order."""
