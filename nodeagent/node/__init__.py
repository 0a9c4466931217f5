"""The node itself: joining, its Node and Lease, the slices of its devices, and what it can run."""
