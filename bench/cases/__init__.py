"""What `bench/end_to_end.py` measures: one module a way of measuring, and what they share."""
