"""Who held which device when."""
