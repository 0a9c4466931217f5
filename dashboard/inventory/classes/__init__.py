"""Device classes: their list, and the workbench where one is written."""
