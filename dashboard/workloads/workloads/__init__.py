"""The pages of workloads: Deployments, Jobs and the like."""
