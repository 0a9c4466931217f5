"""Simulations for autoscalers: which nodes the waiting pods need, and which nodes could be removed.

See `scheduling.rehearsal.autoscaling.kinds`.
"""
