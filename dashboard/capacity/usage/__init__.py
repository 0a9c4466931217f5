"""How much was held by whom, how long claims waited, and what was held without being used."""
