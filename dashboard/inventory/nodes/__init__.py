"""Nodes: their list, and the sheet of one."""
