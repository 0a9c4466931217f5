"""The node itself: joining, its Node and Lease, the slices of its devices, its disk, and what it can run."""
