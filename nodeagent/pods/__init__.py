"""Pods on the node: their containers, status and volumes."""
