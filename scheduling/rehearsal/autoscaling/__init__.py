"""What an autoscaler asks: which nodes do the waiting pods need, and which could go.

See `scheduling.rehearsal.autoscaling.kinds`.
"""
