"""Steering: nodes for pods that opt in, chosen here and nominated in the cluster, whose scheduler still binds."""
