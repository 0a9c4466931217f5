"""The pages that show who holds what."""
