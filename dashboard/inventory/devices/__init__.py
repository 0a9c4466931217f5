"""The pages of the devices: the grid, a device's panel and its page."""
