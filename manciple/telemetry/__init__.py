"""What the processes tell of themselves: metrics, logs, traces. PURE: no Django, so the node agent has it too."""
