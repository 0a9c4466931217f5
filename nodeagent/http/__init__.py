"""What the agent serves over HTTPS: health, metrics, logs."""
