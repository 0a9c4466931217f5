"""Device drivers: the Protocol that the agent speaks with them, and those that ship with it."""
