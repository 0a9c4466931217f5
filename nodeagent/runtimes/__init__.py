"""Container runtimes: the Protocol that the agent speaks with them, and the simulated one."""
