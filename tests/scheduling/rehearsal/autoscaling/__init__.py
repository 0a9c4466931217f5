"""The simulations that autoscalers ask for."""
