"""Pods: their list, the sheet of one, its creation."""
