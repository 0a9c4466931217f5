"""Events, as a log to filter."""
