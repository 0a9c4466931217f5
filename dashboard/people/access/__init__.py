"""What somebody may do, and why."""
