"""The pages that need the scheduler's knowledge: which devices a class matches, and later why a pod waits."""
