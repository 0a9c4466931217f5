"""What the templates of the device pages use."""
