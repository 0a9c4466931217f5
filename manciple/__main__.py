"""`python -m manciple`: the `manciple` command where it is not on the path."""

import sys

from manciple.processes.command_line import main

sys.exit(main())
