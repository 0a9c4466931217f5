"""Claims: their list, and the sheet of one."""
