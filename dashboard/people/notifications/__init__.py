"""Tell me: what a person wants to be told of, by which channels, and what they were told."""
