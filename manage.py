#!/usr/bin/env python
"""Django's command line in a checkout: `manage.py up`, `migrate`, `reindex`, ... Installed, it is `manciple`."""

from __future__ import annotations

import sys

from manciple.processes.command_line import manage

if __name__ == "__main__":
    manage(sys.argv[1:])
